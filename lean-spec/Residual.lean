module
public import Requant

/-!
The residual stream, `verifier/src/gadgets/residual.rs`, and the requantization after attention that writes it.

A stream is range-checked to 24 bits; what a block adds is requantized, and the quotient in that check is the
difference of two streams, not a cell of its own.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- The next stream. -/
def residual (x acc : Int) (s : Nat) : Int := x + requant acc s

theorem residual_unique {x y acc : Int} {s : Nat} (hs : 1 ≤ s ∧ s ≤ 32) (hx : -(2 ^ 23) ≤ x ∧ x < 2 ^ 23)
    (hacc : -(2 ^ 62) < acc ∧ acc < 2 ^ 62) (range : Signed 24 y)
    (rem : Range s (acc + 2 ^ (s - 1) - (y - x) * 2 ^ s)) :
    y ≡ residual x acc s ∧ -(2 ^ 23) ≤ residual x acc s ∧ residual x acc s < 2 ^ 23 := by
  obtain ⟨n, n0, n1, hn⟩ := range.holds (by omega)
  have e := requant_holds hs hacc (hn.sub_const x) (by omega) rem
  have : residual x acc s = n := by unfold residual; omega
  rw [this]
  exact ⟨hn, by omega, by omega⟩

end Zkmoe
