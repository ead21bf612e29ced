module
public import Requant

/-!
Gain and rotation of one pair of channels, `verifier/src/gadgets/rope.rs`.

Normalized values have 16 bits, gains 24, cosine and sine are at most `2^14` in magnitude. So accumulators stay far
below `2^62`, and both halves are determined.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- The two rotated halves. -/
def rope (y0 y1 g0 g1 cos sin : Int) (s : Nat) : Int × Int :=
  (requant (y0 * g0 * cos - y1 * g1 * sin) s, requant (y1 * g1 * cos + y0 * g0 * sin) s)

theorem rope_unique {y0 y1 g0 g1 cos sin q0 q1 : Int} {s : Nat} (hs : 17 ≤ s ∧ s ≤ 32)
    (hy0 : -(2 ^ 15) ≤ y0 ∧ y0 ≤ 2 ^ 15) (hy1 : -(2 ^ 15) ≤ y1 ∧ y1 ≤ 2 ^ 15)
    (hg0 : -(2 ^ 23) ≤ g0 ∧ g0 ≤ 2 ^ 23) (hg1 : -(2 ^ 23) ≤ g1 ∧ g1 ≤ 2 ^ 23)
    (hcos : -(2 ^ 14) ≤ cos ∧ cos ≤ 2 ^ 14) (hsin : -(2 ^ 14) ≤ sin ∧ sin ≤ 2 ^ 14)
    (range0 : Signed 16 q0) (range1 : Signed 16 q1)
    (rem0 : Range s (y0 * g0 * cos - y1 * g1 * sin + 2 ^ (s - 1) - q0 * 2 ^ s))
    (rem1 : Range s (y1 * g1 * cos + y0 * g0 * sin + 2 ^ (s - 1) - q1 * 2 ^ s)) :
    q0 ≡ (rope y0 y1 g0 g1 cos sin s).1 ∧ q1 ≡ (rope y0 y1 g0 g1 cos sin s).2 := by
  have p0 := product_bounds hy0 hg0
  have p1 := product_bounds hy1 hg1
  have p0 : -(2 ^ 38) ≤ y0 * g0 ∧ y0 * g0 ≤ 2 ^ 38 := by omega
  have p1 : -(2 ^ 38) ≤ y1 * g1 ∧ y1 * g1 ≤ 2 ^ 38 := by omega
  have a := product_bounds p0 hcos
  have b := product_bounds p1 hsin
  have c := product_bounds p1 hcos
  have d := product_bounds p0 hsin
  exact ⟨(requant_unique (by omega) (by decide) (by omega) range0 rem0).1,
    (requant_unique (by omega) (by decide) (by omega) range1 rem1).1⟩

end Zkmoe
