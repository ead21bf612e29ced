module
public import Requant

/-!
Division by a hidden denominator, `verifier/src/gadgets/divide.rs`.

The relation checks that `rest = 2 num + den - 2 den q` and `2 den - 1 - rest` have 32 bits. The bounds below hold for
both uses: attention divides `sum e v`, gate weights divide `e 2^14`, and both denominators are sums of at most `2^12`
entries of the exponential table, below `2^28`. That `den` is not zero is a consequence.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- `num / den`, rounded to the nearest integer, halves upwards. -/
def divide (num den : Int) : Int := (2 * num + den) / (2 * den)

theorem divide_holds {num den q n : Int} (hnum : -(2 ^ 60) < num ∧ num < 2 ^ 60) (hden : 0 ≤ den ∧ den < 2 ^ 31)
    (hq : q ≡ n) (hn : -(2 ^ 28) ≤ n ∧ n ≤ 2 ^ 28)
    (below : Range 32 (2 * num + den - den * q * 2))
    (above : Range 32 (den * 2 - (2 * num + den - den * q * 2) - 1)) : n = divide num den ∧ 1 ≤ den := by
  have prod := mul_bounds hn.1 hn.2 hden.1 (by omega : den ≤ 2 ^ 31)
  rw [Int.mul_comm n den] at prod
  have rest : 2 * num + den - den * q * 2 ≡ 2 * num + den - den * n * 2 :=
    ((hq.const_mul den).mul_const 2).const_sub _
  have low := below.of_holds (by omega) rest (by omega) (by omega)
  have high := above.of_holds (by omega) ((rest.const_sub (den * 2)).sub_const 1) (by omega) (by omega)
  have e : n * (2 * den) = den * n * 2 := by
    rw [Int.mul_comm n, Int.mul_comm 2 den, Int.mul_right_comm]
  exact ⟨(floor_unique (by omega : 2 * num + den = n * (2 * den) + (2 * num + den - den * n * 2))
    low.1 (by omega)).symm, by omega⟩

/-- Numerator and denominator are cells that hold integers. The quotient has a range of its own, with sign in attention
and without in gate weights. -/
theorem divide_cells {num' den' num den q : Int} (enum : num' ≡ num) (eden : den' ≡ den)
    (hnum : -(2 ^ 60) < num ∧ num < 2 ^ 60) (hden : 0 ≤ den ∧ den < 2 ^ 31) (range : Signed 16 q ∨ Range 16 q)
    (below : Range 32 (2 * num' + den' - den' * q * 2))
    (above : Range 32 (den' * 2 - (2 * num' + den' - den' * q * 2) - 1)) : q ≡ divide num den ∧ 1 ≤ den := by
  have rest : 2 * num' + den' - den' * q * 2 ≡ 2 * num + den - den * q * 2 :=
    ((enum.const_mul 2).add eden).sub ((eden.mul_const q).mul_const 2)
  obtain ⟨n, low, high, hn⟩ : ∃ n : Int, -(2 ^ 28) ≤ n ∧ n ≤ 2 ^ 28 ∧ q ≡ n := by
    rcases range with r | r
    · obtain ⟨n, low, high, hn⟩ := r.holds (by omega)
      exact ⟨n, by omega, by omega, hn⟩
    · obtain ⟨n, low, high, hn⟩ := r
      exact ⟨n, by omega, by omega, hn⟩
  have e := divide_holds hnum hden hn ⟨low, high⟩ (below.congr rest)
    (above.congr (((eden.mul_const 2).sub rest).sub_const 1))
  exact ⟨e.1 ▸ hn, e.2⟩

end Zkmoe
