module
public import Prime

/-!
Rows of cells: sums, marks, maxima.

A row of `n` values is a function on the natural numbers of which the first `n` values count. The relation's sums over
an index are `total n f`. A row of marks is boolean with a known sum; `one_hot` and `bits` turn this into integers,
which is sound because `n` is far below `p`, so the sum does not wrap.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- `f 0 + ... + f (n - 1)`. -/
def total : Nat → (Nat → Int) → Int
  | 0, _ => 0
  | n + 1, f => total n f + f n

theorem total_cong {n : Nat} {f g : Nat → Int} (h : ∀ i, i < n → f i ≡ g i) : total n f ≡ total n g := by
  induction n with
  | zero => exact Cong.refl _
  | succ n ih => exact (ih fun i hi => h i (by omega)).add (h n (by omega))

theorem total_le {n : Nat} {f g : Nat → Int} (h : ∀ i, i < n → f i ≤ g i) : total n f ≤ total n g := by
  induction n with
  | zero => exact Int.le_refl _
  | succ n ih => exact Int.add_le_add (ih fun i hi => h i (by omega)) (h n (by omega))

theorem total_add (n : Nat) (f g : Nat → Int) : total n (fun i => f i + g i) = total n f + total n g := by
  induction n with
  | zero => rfl
  | succ n ih => simp only [total, ih]; omega

theorem total_const (n : Nat) (c : Int) : total n (fun _ => c) = n * c := by
  induction n with
  | zero => simp [total]
  | succ n ih => rw [total, ih, Int.natCast_succ, Int.add_mul, Int.one_mul]

/-- A row with one entry at `i`. -/
theorem total_single (n i : Nat) (c : Int) :
    total n (fun j => if j = i then c else 0) = if i < n then c else 0 := by
  induction n with
  | zero => rfl
  | succ n ih =>
    simp only [total, ih]
    by_cases h : n = i
    · simp [h]
    · by_cases h' : i < n
      · simp [h, h', show i < n + 1 by omega]
      · simp [h, h', show ¬ i < n + 1 by omega]

/-- If all cells but one hold zero, the sum is that one. -/
theorem total_of_single {n i : Nat} {f : Nat → Int} {c : Int} (hi : i < n) (at_i : f i ≡ c)
    (rest : ∀ j, j < n → j ≠ i → f j ≡ 0) : total n f ≡ c := by
  have h := total_cong (n := n) (f := f) (g := fun j => if j = i then c else 0) (fun j hj => by
    by_cases e : j = i
    · simpa [e] using at_i
    · simpa [e] using rest j hj e)
  rwa [total_single, if_pos hi] at h

/-- The integer that a boolean cell holds. -/
theorem bit {z : Int} (h : z * z - z ≡ 0) : (z % p = 0 ∨ z % p = 1) ∧ z ≡ z % p := by
  refine ⟨?_, cong_emod z⟩
  have b := emod_p_bounds z
  rcases boolean h with h | h
  · exact Or.inl (eq_of_cong ((cong_emod z).symm.trans h) (by omega) (by simp only [p] at *; omega))
  · exact Or.inr (eq_of_cong ((cong_emod z).symm.trans h) (by simp only [p] at *; omega)
      (by simp only [p] at *; omega))

/-- The sum of a row of marks, as an integer. -/
theorem bits {n : Nat} {z : Nat → Int} {k : Int} (hn : n ≤ 2 ^ 32) (h : ∀ i, i < n → z i * z i - z i ≡ 0)
    (sum : total n z ≡ k) (k0 : 0 ≤ k) (k1 : k ≤ 2 ^ 32) : total n (fun i => z i % p) = k := by
  have s := (total_cong (n := n) (g := fun i => z i % p) fun i _ => cong_emod (z i)).symm.trans sum
  have low := total_le (n := n) (f := fun _ => 0) (g := fun i => z i % p) fun i _ => (emod_p_bounds (z i)).1
  have high := total_le (n := n) (f := fun i => z i % p) (g := fun _ => 1) fun i hi => by
    dsimp only
    have := (bit (h i hi)).1
    omega
  rw [total_const] at low high
  exact eq_of_cong s (by simp only [p] at *; omega) (by simp only [p] at *; omega)

theorem exists_of_total_pos {n : Nat} {f : Nat → Int} (h : 0 < total n f) : ∃ i, i < n ∧ 0 < f i := by
  induction n with
  | zero => exact absurd h (by simp [total])
  | succ n ih =>
    by_cases hf : 0 < f n
    · exact ⟨n, by omega, hf⟩
    · obtain ⟨i, hi, h'⟩ := ih (by simp only [total] at h; omega)
      exact ⟨i, by omega, h'⟩

/-- A boolean row with sum 1 marks exactly one place. -/
theorem one_hot {n : Nat} {z : Nat → Int} (hn : n ≤ 2 ^ 32) (h : ∀ i, i < n → z i * z i - z i ≡ 0)
    (sum : total n z ≡ 1) : ∃ i, i < n ∧ z i ≡ 1 ∧ ∀ j, j < n → j ≠ i → z j ≡ 0 := by
  have s := bits hn h sum (by omega) (by omega)
  obtain ⟨i, hi, pos⟩ := exists_of_total_pos (by omega : 0 < total n fun i => z i % p)
  have at_i := bit (h i hi)
  refine ⟨i, hi, by have := at_i.2; rwa [show z i % p = 1 by omega] at this, ?_⟩
  intro j hj ne
  have at_j := bit (h j hj)
  rcases at_j.1 with e | e
  · have := at_j.2; rwa [e] at this
  · have two := total_le (n := n) (f := fun k => (if k = i then 1 else 0) + (if k = j then 1 else 0))
      (g := fun k => z k % p) fun k _ => by
        dsimp only
        have := (emod_p_bounds (z k)).1
        by_cases h1 : k = i
        · subst h1; simp [Ne.symm ne]; omega
        · by_cases h2 : k = j
          · subst h2; simp [h1]; omega
          · simp [h1, h2]; omega
    rw [total_add, total_single, total_single, if_pos hi, if_pos hj] at two
    omega

/-! ## Maxima -/

/-- The first place of the largest of `n` values. -/
def firstMax : Nat → (Nat → Int) → Nat
  | 0, _ => 0
  | n + 1, f => if f (firstMax n f) < f n then n else firstMax n f

/-- The largest of `n` values. -/
def maximum (n : Nat) (f : Nat → Int) : Int := f (firstMax n f)

theorem firstMax_spec (n : Nat) (f : Nat → Int) : firstMax (n + 1) f ≤ n ∧
    ∀ j, j ≤ n → f j ≤ f (firstMax (n + 1) f) ∧ (j < firstMax (n + 1) f → f j < f (firstMax (n + 1) f)) := by
  induction n with
  | zero => simp [firstMax]
  | succ n ih =>
    rw [firstMax]
    split
    · rename_i h
      refine ⟨Nat.le_refl _, fun j hj => ?_⟩
      by_cases e : j = n + 1
      · subst e; omega
      · have := (ih.2 j (by omega)).1; omega
    · rename_i h
      refine ⟨by omega, fun j hj => ?_⟩
      by_cases e : j = n + 1
      · subst e; omega
      · exact ih.2 j (by omega)

theorem firstMax_unique {n i : Nat} {f : Nat → Int} (hi : i < n) (all : ∀ j, j < n → f j ≤ f i)
    (before : ∀ j, j < i → f j < f i) : firstMax n f = i := by
  obtain ⟨m, rfl⟩ : ∃ m, n = m + 1 := ⟨n - 1, by omega⟩
  have s := firstMax_spec m f
  have a := all _ (by omega : firstMax (m + 1) f < m + 1)
  have b := s.2 i (by omega)
  rcases Nat.lt_trichotomy (firstMax (m + 1) f) i with h | h | h
  · have := before _ h; omega
  · exact h
  · have := b.2 h; omega

theorem maximum_unique {n i : Nat} {f : Nat → Int} (hi : i < n) (all : ∀ j, j < n → f j ≤ f i) :
    maximum n f = f i := by
  obtain ⟨m, rfl⟩ : ∃ m, n = m + 1 := ⟨n - 1, by omega⟩
  have s := firstMax_spec m f
  have a := all _ (by omega : firstMax (m + 1) f < m + 1)
  have b := (s.2 i (by omega)).1
  exact Int.le_antisymm a b

end Zkmoe
