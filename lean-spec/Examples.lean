module
public import Router
public import RmsNorm
public import Dispatch

/-!
The constraints have solutions: a theorem about constraints that nothing satisfies would be empty. Requantization and
division are shown to accept the semantics' own value for every input; the others are shown one small row each.
-/

public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

theorem Range.of_int {bits : Nat} {n : Int} (h0 : 0 ≤ n) (h1 : n < 2 ^ bits) : Range bits n :=
  ⟨n, h0, h1, Cong.refl n⟩

/-- The remainder of the requantized value passes. -/
theorem requant_complete (acc : Int) (s : Nat) : Range s (acc + 2 ^ (s - 1) - requant acc s * 2 ^ s) := by
  have pos := two_pow_pos s
  have e := Int.emod_add_mul_ediv (acc + 2 ^ (s - 1)) (2 ^ s)
  have low := Int.emod_nonneg (acc + 2 ^ (s - 1)) (by omega : (2 : Int) ^ s ≠ 0)
  have high := Int.emod_lt_of_pos (acc + 2 ^ (s - 1)) pos
  rw [Int.mul_comm] at e
  unfold requant
  exact Range.of_int (by omega) (by omega)

/-- Both checks of a division pass for its value. -/
theorem divide_complete (num den : Int) (h : 1 ≤ den ∧ den < 2 ^ 31) :
    Range 32 (2 * num + den - den * divide num den * 2) ∧
    Range 32 (den * 2 - (2 * num + den - den * divide num den * 2) - 1) := by
  have e := Int.emod_add_mul_ediv (2 * num + den) (2 * den)
  have low := Int.emod_nonneg (2 * num + den) (by omega : 2 * den ≠ 0)
  have high := Int.emod_lt_of_pos (2 * num + den) (by omega : 0 < 2 * den)
  rw [Int.mul_assoc] at e
  unfold divide
  exact ⟨Range.of_int (by omega) (by omega), Range.of_int (by omega) (by omega)⟩

/-- The norm of `ss = 2^20 + 3`. -/
example : NormConstraints (2 ^ 20 + 3) 0 1 (2 ^ 20) (2 ^ 20 + 3) 0 32767 (32767 * 2 ^ 20) where
  powers_of_z := ⟨0, by decide, Cong.refl _, Cong.refl _, Cong.refl _⟩
  sum_of_squares := Cong.of_eq (by decide)
  u_from_below := Range.of_int (by decide) (by decide)
  u_from_above := Range.of_int (by decide) (by decide)
  r_from_below := Range.of_int (by decide) (by decide)
  r_from_above := Range.of_int (by decide) (by decide)
  m_range := Range.of_int (by decide) (by decide)
  m_not_too_large := Range.of_int (by decide) (by decide)
  m_not_too_small := Range.of_int (by decide) (by decide)
  factor := Cong.of_eq (by decide)

/-- Two logits, of which the second is larger; keys are 1 and 10. -/
example : ArgmaxConstraints 2 22 (fun v => if v = 0 then 0 else 5) 10 1 (fun v => if v = 0 then 0 else 1) where
  none_above := fun v hv => match v, hv with
    | 0, _ => Range.of_int (by decide) (by decide)
    | 1, _ => Range.of_int (by decide) (by decide)
  boolean := fun v hv => match v, hv with
    | 0, _ => Cong.of_eq (by decide)
    | 1, _ => Cong.of_eq (by decide)
  attained := fun v hv => match v, hv with
    | 0, _ => Cong.of_eq (by decide)
    | 1, _ => Cong.of_eq (by decide)
  one := Cong.of_eq (by decide)
  answer := Cong.of_eq (by decide)

/-- Two equal logits and one choice: the first wins; keys are 1 and 0. -/
example : RouterConstraints 2 (fun _ => 0) 1 1 (fun e => if e = 0 then 1 else 0) where
  boolean := fun v hv => match v, hv with
    | 0, _ => Cong.of_eq (by decide)
    | 1, _ => Cong.of_eq (by decide)
  count := Cong.of_eq (by decide)
  before_rest := fun v hv => match v, hv with
    | 0, _ => Range.of_int (by decide) (by decide)
    | 1, _ => Range.of_int (by decide) (by decide)

/-- One admitted cell of two, with the raw score 7 and a shift of 1. -/
example : SoftmaxConstraints 2 1 1 (fun _ => 7) (fun i => if i = 0 then 65535 else 0) 4 65535 (fun _ => 0) (fun _ => 0)
    (fun u => if u = 0 then 1 else 0) (fun u => if u = 0 then 65535 else 0) where
  maximum := Range.of_int (by decide) (by decide)
  exponential := fun u hu => match u, hu with
    | 0, _ => ⟨0, by decide, Cong.of_eq (by decide), Cong.of_eq (by decide)⟩
  excess := fun u hu => match u, hu with
    | 0, _ => Range.of_int (by decide) (by decide)
  score := fun u hu => match u, hu with
    | 0, _ => Range.of_int (by decide) (by decide)
  boolean := fun u hu => match u, hu with
    | 0, _ => Cong.of_eq (by decide)
    | 1, _ => Cong.of_eq (by decide)
  attained := fun u hu => match u, hu with
    | 0, _ => Cong.of_eq (by decide)
    | 1, _ => Cong.of_eq (by decide)
  only_past_the_end := fun u hu => match u, hu with
    | 0, _ => Cong.of_eq (by decide)
    | 1, _ => Cong.of_eq (by decide)
  one := Cong.of_eq (by decide)
  sum := Cong.of_eq (by decide)
  no_later_weight := fun u hu => match u, hu with
    | 0, _ => Cong.of_eq (by decide)
    | 1, _ => Cong.of_eq (by decide)
  no_later_maximum := fun u hu => match u, hu with
    | 0, _ => Cong.of_eq (by decide)
    | 1, _ => Cong.of_eq (by decide)

/-- One selected pair, and a padding row beside its row. -/
example : MatchConstraints 1 2 (fun _ => 1) (fun j => if j = 0 then 1 else 0) (fun _ => 9) (fun _ => 9) where
  first_boolean := fun _ _ => Cong.of_eq (by decide)
  second_boolean := fun j hj => match j, hj with
    | 0, _ => Cong.of_eq (by decide)
    | 1, _ => Cong.of_eq (by decide)
  equal := fun t => by
    by_cases h : 9 = t
    · exact Cong.of_eq (by subst h; decide)
    · exact Cong.of_eq (by simp [copies, total, h])

end Zkmoe
