module
public import Residual
public import Row

/-!
Combine, `verifier/src/gadgets/combine.rs`: what the experts add to the stream of one token.

The rows that belong to the token, with their gates and outputs, are taken as given; that they are found by committed
row weights is an argument about the field's random points and no part of this file. The remainder is a cell, and the
check is an equation.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- The sum over the `n` rows of a token. -/
def gathered (n : Nat) (gate y : Nat → Int) : Int := total n fun i => gate i * y i

theorem gathered_bounds {n : Nat} {gate y : Nat → Int} (hgate : ∀ i, i < n → 0 ≤ gate i ∧ gate i < 2 ^ 16)
    (hy : ∀ i, i < n → -(2 ^ 23) ≤ y i ∧ y i < 2 ^ 23) :
    -(n * 2 ^ 39) ≤ gathered n gate y ∧ gathered n gate y ≤ n * 2 ^ 39 := by
  have each : ∀ i, i < n → -(2 ^ 39) ≤ gate i * y i ∧ gate i * y i ≤ 2 ^ 39 := by
    intro i hi
    have g := hgate i hi
    have v := hy i hi
    have := product_bounds (a := gate i) (A := 2 ^ 16) (b := y i) (B := 2 ^ 23) (by omega) (by omega)
    omega
  have low := total_le fun i hi => (each i hi).1
  have high := total_le fun i hi => (each i hi).2
  rw [total_const] at low high
  unfold gathered
  omega

theorem combine_unique {n : Nat} {gate y : Nat → Int} {x out rem : Int} (hn : n ≤ 2 ^ 8)
    (hgate : ∀ i, i < n → 0 ≤ gate i ∧ gate i < 2 ^ 16) (hy : ∀ i, i < n → -(2 ^ 23) ≤ y i ∧ y i < 2 ^ 23)
    (hx : -(2 ^ 23) ≤ x ∧ x < 2 ^ 23) (range : Signed 24 out) (hrem : Range 14 rem)
    (equation : gathered n gate y + 2 ^ 13 - rem - (out - x) * 2 ^ 14 ≡ 0) :
    out ≡ residual x (gathered n gate y) 14 := by
  have b := gathered_bounds hgate hy
  refine (residual_unique (by omega) hx (by omega) range ?_).1
  obtain ⟨m, m0, m1, hm⟩ := hrem
  refine ⟨m, m0, m1, Cong.trans (Cong.of_sub (Cong.trans (Cong.of_eq ?_) equation)) hm⟩
  omega

end Zkmoe
