module
public import Row
public import Divide

/-!
Softmax without its division, `verifier/src/gadgets/softmax.rs`.

A row has `n` cells, of which the mask admits the first `a` (all of them where there is no mask). The quantized score
is the expression `max - idx - ex`. The constraints determine the maximum, the clipped distances, what clipping takes
away, the weights and their sum. Which of several equal maxima is marked stays free, and no other value depends on it.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- The scores in units of the exponential table. -/
def scores (raw : Nat → Int) (s : Nat) (u : Nat) : Int := requant (raw u) s

/-- The distance of a score to the maximum of its row of `a`, clipped to the table. -/
def clipped (a : Nat) (score : Nat → Int) (u : Nat) : Int :=
  if maximum a score - score u ≤ 65535 then maximum a score - score u else 65535

/-- The weight of a cell: the table's entry, zero off the mask. -/
def weight (a : Nat) (score : Nat → Int) (table : Nat → Int) (u : Nat) : Int :=
  if u < a then table (clipped a score u).toNat else 0

/-- The mask: which cells of a row are admitted. -/
def admitted (a u : Nat) : Int := if u < a then 1 else 0

/-- What the relation states about one row. -/
structure SoftmaxConstraints (n a s : Nat) (raw table : Nat → Int) (max sum : Int)
    (idx ex z e : Nat → Int) : Prop where
  maximum : Signed 24 max
  exponential : ∀ u, u < a → ∃ i : Nat, i < 65536 ∧ idx u ≡ i ∧ e u ≡ table i
  excess : ∀ u, u < a → Range 16 (ex u)
  score : ∀ u, u < a → Range s (raw u + 2 ^ (s - 1) - (max - idx u - ex u) * 2 ^ s)
  boolean : ∀ u, u < n → z u * z u - z u ≡ 0
  attained : ∀ u, u < n → z u * (idx u + ex u) ≡ 0
  only_past_the_end : ∀ u, u < n → ex u * 65535 - ex u * idx u ≡ 0
  one : total n z - 1 ≡ 0
  sum : total n e - sum ≡ 0
  no_later_weight : ∀ u, u < n → e u - e u * admitted a u ≡ 0
  no_later_maximum : ∀ u, u < n → z u - z u * admitted a u ≡ 0

theorem off_mask {a u : Nat} {x : Int} (h : x - x * admitted a u ≡ 0) (hu : ¬ u < a) : x ≡ 0 := by
  unfold admitted at h
  rw [if_neg hu, Int.mul_zero] at h
  rwa [Int.sub_zero] at h

theorem softmax_unique {n a s : Nat} {raw table : Nat → Int} {max sum : Int} {idx ex z e : Nat → Int}
    (hs : 1 ≤ s ∧ s ≤ 32) (hn : n ≤ 2 ^ 12) (ha : a ≤ n) (hraw : ∀ u, u < a → -(2 ^ 62) < raw u ∧ raw u < 2 ^ 62)
    (c : SoftmaxConstraints n a s raw table max sum idx ex z e) :
    max ≡ maximum a (scores raw s) ∧
    (∀ u, u < a → idx u ≡ clipped a (scores raw s) u ∧
      ex u ≡ maximum a (scores raw s) - scores raw s u - clipped a (scores raw s) u) ∧
    (∀ u, u < n → e u ≡ weight a (scores raw s) table u) ∧
    sum ≡ total n (weight a (scores raw s) table) := by
  obtain ⟨m, m0, m1, hm⟩ := c.maximum.holds (by omega)
  -- Every admitted cell splits its distance into an index and an excess.
  have split : ∀ u, u < a → ∃ (i : Nat) (x : Int), i < 65536 ∧ 0 ≤ x ∧ idx u ≡ i ∧ ex u ≡ x ∧ e u ≡ table i ∧
      m - i - x = scores raw s u ∧ (x = 0 ∨ i = 65535) ∧ x < 65536 := by
    intro u hu
    obtain ⟨i, hi, hidx, he⟩ := c.exponential u hu
    obtain ⟨x, x0, x1, hx⟩ := c.excess u hu
    refine ⟨i, x, hi, x0, hidx, hx, he, ?_, ?_, by omega⟩
    · exact requant_holds hs (hraw u hu) ((hm.sub hidx).sub hx) (by omega) (c.score u hu)
    · have h : x * 65535 - x * i ≡ 0 :=
        ((hx.mul_const 65535).sub (hx.mul hidx)).symm.trans (c.only_past_the_end u (by omega))
      have b := mul_bounds (a := x) (A := 65536) (b := 65535 - i) (B := 65535)
        (by omega) (by omega) (by omega) (by omega)
      rw [← Int.mul_sub] at h
      have zero := eq_of_cong h (by simp only [p]; omega) (by simp only [p]; omega)
      rcases Int.mul_eq_zero.mp zero with h | h
      · exact Or.inl h
      · exact Or.inr (by omega)
  -- The marked cell is admitted and has distance zero.
  obtain ⟨v, hv, marked, _⟩ := one_hot (by omega) c.boolean (Cong.of_sub c.one)
  have hva : v < a := by
    rcases Nat.lt_or_ge v a with h | h
    · exact h
    · have := eq_of_cong (marked.symm.trans (off_mask (c.no_later_maximum v hv) (by omega)))
        (by decide) (by decide)
      omega
  have top : m = scores raw s v := by
    obtain ⟨i, x, hi, x0, hidx, hx, -, score, -, x1⟩ := split v hva
    have h := (marked.mul (hidx.add hx)).symm.trans (c.attained v hv)
    rw [Int.one_mul] at h
    have := eq_of_cong h (by simp only [p]; omega) (by simp only [p]; omega)
    omega
  have greatest : maximum a (scores raw s) = m := by
    rw [top]
    refine maximum_unique hva fun j hj => ?_
    obtain ⟨i, x, hi, x0, -, -, -, score, -, -⟩ := split j hj
    omega
  have weights : ∀ u, u < n → e u ≡ weight a (scores raw s) table u := by
    intro u hu
    unfold weight clipped
    rw [greatest]
    split
    · rename_i hua
      obtain ⟨i, x, hi, x0, -, -, he, score, only, -⟩ := split u hua
      rw [show (if m - scores raw s u ≤ 65535 then m - scores raw s u else 65535).toNat = i by split <;> omega]
      exact he
    · rename_i hua
      exact off_mask (c.no_later_weight u hu) hua
  refine ⟨greatest ▸ hm, ?_, weights, (Cong.of_sub c.sum).symm.trans (total_cong weights)⟩
  intro u hu
  unfold clipped
  rw [greatest]
  obtain ⟨i, x, hi, x0, hidx, hx, -, score, only, -⟩ := split u hu
  rw [show (if m - scores raw s u ≤ 65535 then m - scores raw s u else 65535) = (i : Int) by split <;> omega,
    show m - scores raw s u - i = x by omega]
  exact ⟨hidx, hx⟩

/-! ## The bounds that the division after it needs -/

theorem weight_bounds (a : Nat) (score : Nat → Int) {table : Nat → Int}
    (h : ∀ i, i < 65536 → 0 ≤ table i ∧ table i ≤ 65535) (u : Nat) :
    0 ≤ weight a score table u ∧ weight a score table u ≤ 65535 := by
  unfold weight
  split
  · refine h _ ?_
    unfold clipped
    split <;> omega
  · omega

theorem sum_bounds {n : Nat} (hn : n ≤ 2 ^ 12) (a : Nat) (score : Nat → Int) {table : Nat → Int}
    (h : ∀ i, i < 65536 → 0 ≤ table i ∧ table i ≤ 65535) :
    0 ≤ total n (weight a score table) ∧ total n (weight a score table) < 2 ^ 28 := by
  have low := total_le (n := n) fun i (_ : i < n) => (weight_bounds a score h i).1
  have high := total_le (n := n) fun i (_ : i < n) => (weight_bounds a score h i).2
  rw [total_const] at low high
  omega

/-- One channel of attention: the mean of the values `v` of a row, by weight. -/
def attended (n a : Nat) (score table v : Nat → Int) : Int :=
  divide (total n fun u => weight a score table u * v u) (total n (weight a score table))

theorem attended_unique {n a s : Nat} {raw table v : Nat → Int} {max sum out : Int} {idx ex z e : Nat → Int}
    (hs : 1 ≤ s ∧ s ≤ 32) (hn : n ≤ 2 ^ 12) (ha : a ≤ n) (hraw : ∀ u, u < a → -(2 ^ 62) < raw u ∧ raw u < 2 ^ 62)
    (htable : ∀ i, i < 65536 → 0 ≤ table i ∧ table i ≤ 65535) (hv : ∀ u, u < n → -(2 ^ 15) ≤ v u ∧ v u < 2 ^ 15)
    (c : SoftmaxConstraints n a s raw table max sum idx ex z e) (output : Signed 16 out)
    (below : Range 32 (2 * total n (fun u => e u * v u) + sum - sum * out * 2))
    (above : Range 32 (sum * 2 - (2 * total n (fun u => e u * v u) + sum - sum * out * 2) - 1)) :
    out ≡ attended n a (scores raw s) table v := by
  obtain ⟨-, -, weights, hsum⟩ := softmax_unique hs hn ha hraw c
  have sb := sum_bounds hn a (scores raw s) htable
  have each : ∀ u, u < n → -(2 ^ 31) ≤ weight a (scores raw s) table u * v u ∧
      weight a (scores raw s) table u * v u ≤ 2 ^ 31 := by
    intro u hu
    have w := weight_bounds a (scores raw s) htable u
    have x := hv u hu
    have := product_bounds (a := weight a (scores raw s) table u) (A := 2 ^ 16) (b := v u) (B := 2 ^ 15)
      (by omega) (by omega)
    omega
  have low := total_le fun u hu => (each u hu).1
  have high := total_le fun u hu => (each u hu).2
  rw [total_const] at low high
  exact (divide_cells (total_cong fun u hu => (weights u hu).mul_const (v u)) hsum (by omega) (by omega)
    (Or.inl output) below above).1

end Zkmoe
