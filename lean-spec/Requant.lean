module
public import Field

/-!
Requantization, `verifier/src/gadgets/requant.rs`.

The relation holds a value `q` with a signed range of its own and checks that `acc + 2^(s-1) - q 2^s` has `s` bits.
Then `q` is the floor of `(acc + 2^(s-1)) / 2^s`, for accumulators of either sign below `2^62` and shifts of 1 to 32.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- `acc / 2^s`, rounded to the nearest integer, halves upwards. Division by a positive integer is the floor. -/
def requant (acc : Int) (s : Nat) : Int := (acc + 2 ^ (s - 1)) / 2 ^ s

theorem floor_unique {a q r d : Int} (h : a = q * d + r) (low : 0 ≤ r) (high : r < d) : a / d = q := by
  rw [h, Int.add_comm, Int.add_mul_ediv_right _ _ (by omega : d ≠ 0), Int.ediv_eq_zero_of_lt low high]
  omega

/-- The form that other gadgets use: any cell that holds some integer below `2^30` in magnitude and passes the check of
the remainder holds the requantized accumulator. -/
theorem requant_holds {acc q n : Int} {s : Nat} (hs : 1 ≤ s ∧ s ≤ 32) (hacc : -(2 ^ 62) < acc ∧ acc < 2 ^ 62)
    (hq : q ≡ n) (hn : -(2 ^ 30) ≤ n ∧ n ≤ 2 ^ 30) (rem : Range s (acc + 2 ^ (s - 1) - q * 2 ^ s)) :
    n = requant acc s := by
  have pos := two_pow_pos (s - 1)
  have half := two_pow_half hs.1
  have top := two_pow_le hs.2
  have prod := mul_bounds hn.1 hn.2 (by omega : (0 : Int) ≤ 2 ^ s) top
  have r := rem.of_holds (v := acc + 2 ^ (s - 1) - n * 2 ^ s) (by omega)
    ((hq.mul_const (2 ^ s)).const_sub _) (by omega) (by omega)
  exact (floor_unique (by omega : acc + 2 ^ (s - 1) = n * 2 ^ s + (acc + 2 ^ (s - 1) - n * 2 ^ s)) r.1 r.2).symm

/-- `requant::output`: a cell of `bits` bits with sign that passes the check of the remainder holds the requantized
accumulator, and that value has `bits` bits. -/
theorem requant_unique {acc q : Int} {s bits : Nat} (hs : 1 ≤ s ∧ s ≤ 32) (hb : 1 ≤ bits ∧ bits ≤ 24)
    (hacc : -(2 ^ 62) < acc ∧ acc < 2 ^ 62) (range : Signed bits q)
    (rem : Range s (acc + 2 ^ (s - 1) - q * 2 ^ s)) :
    q ≡ requant acc s ∧ -(2 ^ (bits - 1)) ≤ requant acc s ∧ requant acc s < 2 ^ (bits - 1) := by
  obtain ⟨n, low, high, hn⟩ := range.holds hb.1
  have top := two_pow_le (by omega : bits - 1 ≤ 23)
  have e := requant_holds hs hacc hn (by omega) rem
  exact e ▸ ⟨hn, low, high⟩

/-- The check of the remainder alone admits a wrong `q`, so the range of `q` is needed. The witness is the inverse of 2
modulo `p`. -/
theorem range_of_value_is_needed : ∃ q : Int, Range 1 (0 + 2 ^ (1 - 1) - q * 2 ^ 1) ∧ ¬ q ≡ requant 0 1 := by
  refine ⟨9223372034707292161, ⟨0, by decide, by decide, -1, by decide⟩, ?_⟩
  rintro ⟨k, hk⟩
  rw [show requant 0 1 = 0 by decide] at hk
  simp only [p] at hk
  omega

end Zkmoe
