module
public import Row

/-!
Dispatch, `verifier/src/gadgets/dispatch.rs`: the rows of the experts are those of the tokens that selected them.

The lookup argument shows that two multisets of tuples are equal: every tuple has the same number of copies on both
sides, counted modulo `p`. One side has a tuple for each mark `s` that is set, the other for each mark `r`. Both kinds
of marks are boolean and the tuples of the first side differ, so marked entries correspond one to one, and
corresponding entries have the same tuple. `Tuple` is any type: here token, layer, expert, vector and gate.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- How often a tuple occurs among the marked entries. -/
def copies {Tuple : Type} [DecidableEq Tuple] (n : Nat) (mark : Nat → Int) (side : Nat → Tuple) (t : Tuple) : Int :=
  total n fun i => if side i = t then mark i else 0

/-- What the relation and the lookup argument state about the two sides. -/
structure MatchConstraints {Tuple : Type} [DecidableEq Tuple] (n m : Nat) (s r : Nat → Int) (a b : Nat → Tuple) :
    Prop where
  first_boolean : ∀ i, i < n → s i * s i - s i ≡ 0
  second_boolean : ∀ j, j < m → r j * r j - r j ≡ 0
  equal : ∀ t, copies n s a t ≡ copies m r b t

variable {Tuple : Type} [DecidableEq Tuple]

/-- The same count as an integer: each mark is the bit that its cell holds. -/
def marked (n : Nat) (mark : Nat → Int) (side : Nat → Tuple) (t : Tuple) : Int :=
  total n fun i => if side i = t then mark i % p else 0

theorem copies_integer {n : Nat} {mark : Nat → Int} {side : Nat → Tuple} (hn : n ≤ 2 ^ 32)
    (h : ∀ i, i < n → mark i * mark i - mark i ≡ 0) (t : Tuple) :
    copies n mark side t ≡ marked n mark side t ∧
    0 ≤ marked n mark side t ∧ marked n mark side t ≤ 2 ^ 32 := by
  refine ⟨total_cong fun i _ => ?_, ?_, ?_⟩
  · split
    · exact cong_emod _
    · exact Cong.refl _
  · have := total_le (n := n) (f := fun _ => 0) (g := fun i => if side i = t then mark i % p else 0) fun i _ => by
      dsimp only
      have := (emod_p_bounds (mark i)).1
      split <;> omega
    rw [total_const] at this
    unfold marked
    omega
  · have := total_le (n := n) (f := fun i => if side i = t then mark i % p else 0) (g := fun _ => 1) fun i hi => by
      dsimp only
      have := (bit (h i hi)).1
      split <;> omega
    rw [total_const] at this
    unfold marked
    omega

theorem set_of_pos {n : Nat} {mark : Nat → Int} {side : Nat → Tuple} {t : Tuple}
    (h : ∀ i, i < n → mark i * mark i - mark i ≡ 0) (pos : 0 < marked n mark side t) :
    ∃ i, i < n ∧ mark i ≡ 1 ∧ side i = t := by
  obtain ⟨i, hi, hp⟩ := exists_of_total_pos pos
  have b := bit (h i hi)
  by_cases e : side i = t
  · rw [if_pos e] at hp
    have := b.2
    rw [show mark i % p = 1 by omega] at this
    exact ⟨i, hi, this, e⟩
  · rw [if_neg e] at hp
    omega

theorem one_of_set {x : Int} (h : x ≡ 1) : x % p = 1 := by
  have b := emod_p_bounds x
  exact eq_of_cong ((cong_emod x).symm.trans h) (by simp only [p] at *; omega) (by simp only [p] at *; omega)

theorem pos_of_set {n i : Nat} {mark : Nat → Int} {side : Nat → Tuple} (hi : i < n) (h : mark i ≡ 1) :
    0 < marked n mark side (side i) := by
  have := total_le (n := n) (f := fun j => if j = i then 1 else 0)
    (g := fun j => if side j = side i then mark j % p else 0) fun j _ => by
      dsimp only
      have := (emod_p_bounds (mark j)).1
      have := one_of_set h
      by_cases e : j = i
      · subst e; simp; omega
      · simp only [e, if_false]; split <;> omega
  rw [total_single, if_pos hi] at this
  unfold marked
  omega

/-- Every marked entry of the first side has exactly one marked partner, and every marked entry of the second side has
one. -/
theorem match_unique {n m : Nat} {s r : Nat → Int} {a b : Nat → Tuple} (hn : n ≤ 2 ^ 32) (hm : m ≤ 2 ^ 32)
    (distinct : ∀ i j, i < n → j < n → a i = a j → i = j) (c : MatchConstraints n m s r a b) :
    (∀ i, i < n → s i ≡ 1 → ∃ j, j < m ∧ r j ≡ 1 ∧ b j = a i ∧ ∀ j', j' < m → r j' ≡ 1 → b j' = a i → j' = j) ∧
    (∀ j, j < m → r j ≡ 1 → ∃ i, i < n ∧ s i ≡ 1 ∧ a i = b j) := by
  have same : ∀ t, marked n s a t = marked m r b t := by
    intro t
    have x := copies_integer (side := a) hn c.first_boolean t
    have y := copies_integer (side := b) hm c.second_boolean t
    exact eq_of_cong (x.1.symm.trans ((c.equal t).trans y.1)) (by simp only [p]; omega) (by simp only [p]; omega)
  constructor
  · intro i hi hs
    have pos := pos_of_set (side := a) hi hs
    rw [same] at pos
    obtain ⟨j, hj, hr, hb⟩ := set_of_pos c.second_boolean pos
    refine ⟨j, hj, hr, hb, ?_⟩
    intro j' hj' hr' hb'
    by_cases e : j' = j
    · exact e
    exfalso
    have most := total_le (n := n) (f := fun k => if a k = a i then s k % p else 0)
      (g := fun k => if k = i then 1 else 0) fun k hk => by
        dsimp only
        by_cases ek : k = i
        · subst ek
          have := one_of_set hs
          simp
          omega
        · have : a k ≠ a i := fun h => ek (distinct k i hk hi h)
          simp [this, ek]
    rw [total_single, if_pos hi] at most
    have least := total_le (n := m) (f := fun k => (if k = j then 1 else 0) + (if k = j' then 1 else 0))
      (g := fun k => if b k = a i then r k % p else 0) fun k _ => by
        dsimp only
        have := (emod_p_bounds (r k)).1
        by_cases e1 : k = j
        · subst e1
          have := one_of_set hr
          simp [hb, Ne.symm e]
          omega
        · by_cases e2 : k = j'
          · subst e2
            have := one_of_set hr'
            simp [hb', e1]
            omega
          · simp only [e1, e2, if_false]
            split <;> omega
    rw [total_add, total_single, total_single, if_pos hj, if_pos hj'] at least
    have e' := same (a i)
    unfold marked at e'
    omega
  · intro j hj hr
    have pos := pos_of_set (side := b) hj hr
    rw [← same] at pos
    exact set_of_pos c.first_boolean pos

end Zkmoe
