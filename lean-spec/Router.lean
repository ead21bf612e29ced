module
public import Argmax
public import Softmax

/-!
The choice of experts, `verifier/src/gadgets/router.rs`.

Marks are boolean with sum `k`, and one range check for each expert compares its key with a threshold `theta`, which
has no range of its own. Then the marked experts are the `k` with the largest keys. (`theta` itself is not determined:
any number above the largest key left out and up to the least one chosen will do, and nothing else depends on it.)

Gate weights are a softmax over all experts and a division.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- The number of experts ahead of `e`. -/
def ahead (n : Nat) (logit : Nat → Int) (e : Nat) : Int :=
  total n fun j => if key n logit e < key n logit j then 1 else 0

/-- One of the `k` largest: fewer than `k` others are ahead. -/
def chosen (n : Nat) (logit : Nat → Int) (k : Nat) (e : Nat) : Int :=
  if ahead n logit e < k then 1 else 0

/-- What the relation states about the `n` experts of one token. -/
structure RouterConstraints (n : Nat) (logit : Nat → Int) (k : Nat) (theta : Int) (sel : Nat → Int) : Prop where
  boolean : ∀ e, e < n → sel e * sel e - sel e ≡ 0
  count : total n sel - k ≡ 0
  before_rest : ∀ e, e < n →
    Range 32 (sel e * (key n logit e - theta) * 2 - (key n logit e - theta) - 1 + sel e)

theorem router_unique {n k : Nat} {logit : Nat → Int} {theta : Int} {sel : Nat → Int}
    (hn : n ≤ 2 ^ 8) (hk : 1 ≤ k) (hkn : k ≤ n) (range : ∀ e, e < n → -(2 ^ 23) ≤ logit e ∧ logit e < 2 ^ 23)
    (c : RouterConstraints n logit k theta sel) : ∀ e, e < n → sel e ≡ chosen n logit k e := by
  have count := bits (by omega) c.boolean (Cong.of_sub c.count) (by omega) (by omega)
  have keys : ∀ e, e < n → -(2 ^ 31) ≤ key n logit e ∧ key n logit e < 2 ^ 32 := by
    intro e he
    have := range e he
    have := key_bounds (logit := logit) (L := 2 ^ 23) (N := 2 ^ 8) he (by omega) (by omega)
    omega
  -- What the range check says of a chosen expert and of one that is left out.
  have yes : ∀ e, e < n → sel e ≡ 1 → Range 32 (key n logit e - theta) := by
    intro e he h
    have := ((((h.mul_const (key n logit e - theta)).mul_const 2).sub_const (key n logit e - theta)).sub_const 1).add h
    exact (c.before_rest e he).congr (this.trans (Cong.of_eq (by omega)))
  have no : ∀ e, e < n → sel e ≡ 0 → Range 32 (theta - key n logit e - 1) := by
    intro e he h
    have := ((((h.mul_const (key n logit e - theta)).mul_const 2).sub_const (key n logit e - theta)).sub_const 1).add h
    exact (c.before_rest e he).congr (this.trans (Cong.of_eq (by omega)))
  -- Some expert is chosen, so the threshold is an integer.
  obtain ⟨e0, he0, pos⟩ := exists_of_total_pos (by omega : 0 < total n fun i => sel i % p)
  have first : sel e0 ≡ 1 := by
    have := bit (c.boolean e0 he0)
    have e := this.2
    rwa [show sel e0 % p = 1 by omega] at e
  obtain ⟨d, d0, d1, hd⟩ := yes e0 he0 first
  have htheta : theta ≡ key n logit e0 - d := by
    have h := hd.const_sub (key n logit e0)
    rwa [show key n logit e0 - (key n logit e0 - theta) = theta by omega] at h
  have k0 := keys e0 he0
  have above : ∀ e, e < n → sel e ≡ 1 → key n logit e0 - d ≤ key n logit e := by
    intro e he h
    have b := keys e he
    have := (yes e he h).of_holds (by omega) (htheta.const_sub _) (by omega) (by omega)
    omega
  have below : ∀ e, e < n → sel e ≡ 0 → key n logit e < key n logit e0 - d := by
    intro e he h
    have b := keys e he
    have := (no e he h).of_holds (by omega) ((htheta.sub_const _).sub_const 1) (by omega) (by omega)
    omega
  -- Count who is ahead.
  intro e he
  have be := bit (c.boolean e he)
  have other : ∀ j, j < n → (sel j % p = 0 ∧ key n logit j < key n logit e0 - d) ∨
      (sel j % p = 1 ∧ key n logit e0 - d ≤ key n logit j) := by
    intro j hj
    have b := bit (c.boolean j hj)
    rcases b.1 with h | h
    · exact Or.inl ⟨h, below j hj (by have := b.2; rwa [h] at this)⟩
    · exact Or.inr ⟨h, above j hj (by have := b.2; rwa [h] at this)⟩
  have oe := other e he
  rcases be.1 with h | h
  · have le : total n (fun j => sel j % p) ≤ ahead n logit e := total_le fun j hj => by
      have := other j hj
      split <;> omega
    have : chosen n logit k e = 0 := by
      unfold chosen
      rw [if_neg (by omega)]
    rw [this, ← h]
    exact be.2
  · have le : total n (fun j => (if key n logit e < key n logit j then 1 else 0) + (if j = e then 1 else 0)) ≤
        total n (fun j => sel j % p) := total_le fun j hj => by
      have := other j hj
      by_cases hje : j = e
      · subst hje; simp; omega
      · simp only [hje, if_false]; split <;> omega
    rw [total_add, total_single, if_pos he] at le
    have : chosen n logit k e = 1 := by
      unfold chosen ahead
      rw [if_pos (by omega)]
    rw [this, ← h]
    exact be.2

/-- The gate weight of an expert, a share of `2^14`. -/
noncomputable def gateWeight (n : Nat) (score table : Nat → Int) (e : Nat) : Int :=
  divide (weight n score table e * 2 ^ 14) (total n (weight n score table))

theorem gate_unique {n s : Nat} {logit table : Nat → Int} {max sum : Int} {idx ex z w gate : Nat → Int}
    (hs : 1 ≤ s ∧ s ≤ 16) (hn : n ≤ 2 ^ 8) (range : ∀ e, e < n → -(2 ^ 23) ≤ logit e ∧ logit e < 2 ^ 23)
    (htable : ∀ i, i < 65536 → 0 ≤ table i ∧ table i ≤ 65535)
    (c : SoftmaxConstraints n n s logit table max sum idx ex z w)
    (output : ∀ e, e < n → Range 16 (gate e))
    (below : ∀ e, e < n → Range 32 (2 * (w e * 2 ^ 14) + sum - sum * gate e * 2))
    (above : ∀ e, e < n → Range 32 (sum * 2 - (2 * (w e * 2 ^ 14) + sum - sum * gate e * 2) - 1)) :
    ∀ e, e < n → gate e ≡ gateWeight n (scores logit s) table e := by
  intro e he
  have hraw : ∀ u, u < n → -(2 ^ 62) < logit u ∧ logit u < 2 ^ 62 := fun u hu => by have := range u hu; omega
  obtain ⟨-, -, weights, hsum⟩ := softmax_unique (by omega) (by omega) (Nat.le_refl n) hraw c
  have wb := weight_bounds n (scores logit s) htable e
  have sb := sum_bounds (by omega : n ≤ 2 ^ 12) n (scores logit s) htable
  exact (divide_cells ((weights e he).mul_const (2 ^ 14)) hsum (by omega) (by omega)
    (Or.inr (output e he)) (below e he) (above e he)).1

end Zkmoe
