module
public import Row
public import Requant

/-!
Root mean square normalization, `verifier/src/gadgets/rms_norm.rs`.

`ss = u 4^z + r` with `0 ≤ r < 4^z` and `2^20 ≤ u < 2^22` has one solution, and `m` is the largest integer with `m^2 u
≤ 2^50`. Every cell of the norm is determined by `ss` and the vector. The header's check ensures `2^20 ≤ ss < 2^62`
for vectors in their range; uniqueness needs the upper bound only, since below `2^20` no mantissa fits.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- Half the exponent of `ss` as a floating point number with a mantissa of 22 bits. -/
def exponent (ss : Int) : Nat := (ss.toNat.log2 - 20) / 2

/-- The largest `m ≤ limit` with `m^2 u ≤ 2^50`. -/
def largestRoot (u : Int) : Nat → Nat
  | 0 => 0
  | limit + 1 => if ((limit : Int) + 1) * (limit + 1) * u ≤ 2 ^ 50 then limit + 1 else largestRoot u limit

/-- The inverse root of a mantissa. -/
def inverseRoot (u : Int) : Int := largestRoot u (2 ^ 16)

/-- The multiplier of the vector. -/
def multiplier (ss : Int) : Int := inverseRoot (ss / 4 ^ exponent ss) * 2 ^ (20 - exponent ss)

theorem four_pow (t : Nat) : (4 : Int) ^ t = 2 ^ (2 * t) := by
  rw [show (4 : Int) = 2 ^ 2 by decide, ← Int.pow_mul]

/-- One exponent alone brings the mantissa into its range. -/
theorem exponent_unique {ss : Int} {t : Nat} (low : 2 ^ 20 * 4 ^ t ≤ ss) (high : ss < 2 ^ 22 * 4 ^ t) :
    t = exponent ss := by
  rw [four_pow] at low high
  rw [← Int.pow_add] at low high
  have pos := two_pow_pos (20 + 2 * t)
  have ne : ss.toNat ≠ 0 := by omega
  have l : 2 ^ (20 + 2 * t) ≤ ss.toNat := by
    have : ((2 ^ (20 + 2 * t) : Nat) : Int) ≤ ss := by rw [Int.natCast_pow]; exact low
    omega
  have h : ss.toNat < 2 ^ (22 + 2 * t) := by
    have : ss < ((2 ^ (22 + 2 * t) : Nat) : Int) := by rw [Int.natCast_pow]; exact high
    omega
  have l := (Nat.le_log2 ne).mpr l
  have h := (Nat.log2_lt ne).mpr h
  unfold exponent
  omega

/-- Squares times a positive mantissa grow. -/
theorem square_mono {a b u : Int} (ha : 0 ≤ a) (hab : a ≤ b) (hu : 0 ≤ u) : a * a * u ≤ b * b * u :=
  Int.mul_le_mul_of_nonneg_right
    (Int.le_trans (Int.mul_le_mul_of_nonneg_left hab ha) (Int.mul_le_mul_of_nonneg_right hab (by omega))) hu

theorem largestRoot_spec {u : Int} {m limit : Nat} (hm : m ≤ limit) (hu : 0 ≤ u) (low : (m : Int) * m * u ≤ 2 ^ 50)
    (high : 2 ^ 50 < ((m : Int) + 1) * (m + 1) * u) : largestRoot u limit = m := by
  induction limit with
  | zero => simp [largestRoot]; omega
  | succ limit ih =>
    rw [largestRoot]
    split
    · rename_i h
      rcases Nat.lt_or_ge m (limit + 1) with lt | ge
      · have := square_mono (a := (m : Int) + 1) (b := (limit : Int) + 1) (by omega) (by omega) hu
        omega
      · omega
    · rename_i h
      rcases Nat.lt_or_ge m (limit + 1) with lt | ge
      · exact ih (by omega)
      · have e : m = limit + 1 := by omega
        rw [e, Int.natCast_succ] at low
        exact absurd low h

/-- What the relation states about the scalars of one norm. -/
structure NormConstraints (ss z w4 w2 u r m f : Int) : Prop where
  powers_of_z : ∃ t : Nat, t ≤ 20 ∧ z ≡ t ∧ w4 ≡ 4 ^ t ∧ w2 ≡ 2 ^ (20 - t)
  sum_of_squares : ss - u * w4 - r ≡ 0
  u_from_below : Range 22 (u - 2 ^ 20)
  u_from_above : Range 22 (-u + (2 ^ 22 - 1))
  r_from_below : Range 40 r
  r_from_above : Range 40 (w4 - r - 1)
  m_range : Range 16 m
  m_not_too_large : Range 38 (-(m * m * u) + 2 ^ 50)
  m_not_too_small : Range 38 (m * m * u + m * u * 2 + u - (2 ^ 50 + 1))
  factor : f - m * w2 ≡ 0

/-- All scalars of a norm are determined by `ss`; the multiplier is an integer below `2^36`. -/
theorem norm_unique {ss z w4 w2 u r m f : Int} (hss : 0 ≤ ss ∧ ss < 2 ^ 62)
    (c : NormConstraints ss z w4 w2 u r m f) :
    z ≡ exponent ss ∧ w4 ≡ 4 ^ exponent ss ∧ w2 ≡ 2 ^ (20 - exponent ss) ∧
    u ≡ ss / 4 ^ exponent ss ∧ r ≡ ss % 4 ^ exponent ss ∧
    m ≡ inverseRoot (ss / 4 ^ exponent ss) ∧ f ≡ multiplier ss ∧
    0 ≤ multiplier ss ∧ multiplier ss ≤ 2 ^ 36 := by
  obtain ⟨t, ht, hz, hw4, hw2⟩ := c.powers_of_z
  have W0 : (0 : Int) < 4 ^ t := by rw [four_pow]; exact two_pow_pos _
  have W1 : (4 : Int) ^ t ≤ 2 ^ 40 := by rw [four_pow]; exact two_pow_le (by omega)
  -- The mantissa is an integer between its two ends.
  obtain ⟨n, n0, n1, hn⟩ := c.u_from_below
  have hu : u ≡ n + 2 ^ 20 := by
    have := hn.add_const (2 ^ 20)
    rwa [Int.sub_add_cancel] at this
  generalize hU : n + 2 ^ 20 = U at hu
  have uhigh := c.u_from_above.of_holds (v := -U + (2 ^ 22 - 1)) (by omega)
    (by have := (hu.const_sub 0).add_const (2 ^ 22 - 1); rwa [Int.zero_sub, Int.zero_sub] at this)
    (by omega) (by omega)
  have U0 : 2 ^ 20 ≤ U := by omega
  have U1 : U < 2 ^ 22 := by omega
  -- So is what it drops.
  obtain ⟨R, R0, R1, hr⟩ := c.r_from_below
  have rhigh := c.r_from_above.of_holds (v := 4 ^ t - R - 1) (by omega) ((hw4.sub hr).sub_const 1)
    (by omega) (by omega)
  -- The sum of squares, over the integers.
  have prod := mul_bounds (a := U) (A := 2 ^ 22) (by omega) (by omega) (Int.le_of_lt W0) W1
  have nonneg := Int.mul_nonneg (by omega : 0 ≤ U) (Int.le_of_lt W0)
  have sum : ss = U * 4 ^ t + R := by
    have h : ss - U * 4 ^ t - R ≡ 0 := (((hu.mul hw4).const_sub ss).sub hr).symm.trans c.sum_of_squares
    have := eq_of_cong h (by simp only [p]; omega) (by simp only [p]; omega)
    omega
  have low := Int.mul_le_mul_of_nonneg_right U0 (Int.le_of_lt W0)
  have high := Int.mul_le_mul_of_nonneg_right (by omega : U + 1 ≤ 2 ^ 22) (Int.le_of_lt W0)
  rw [Int.add_mul, Int.one_mul] at high
  have te : t = exponent ss := exponent_unique (by omega) (by omega)
  have quot : ss / 4 ^ t = U := floor_unique sum R0 (by omega)
  have rest : ss % 4 ^ t = R := by
    have := Int.emod_add_mul_ediv ss (4 ^ t)
    rw [quot, Int.mul_comm] at this
    omega
  -- The inverse root.
  obtain ⟨M, M0, M1, hm⟩ := c.m_range
  have mu := mul_bounds (a := M) (A := 2 ^ 16) (by omega) (by omega) (by omega : 0 ≤ U) (by omega : U ≤ 2 ^ 22)
  have mm := mul_bounds (a := M) (A := 2 ^ 16) (by omega) (by omega) M0 (by omega : M ≤ 2 ^ 16)
  have mmu := mul_bounds (a := M * M) (A := 2 ^ 32) (by omega) (by omega) (by omega : 0 ≤ U) (by omega : U ≤ 2 ^ 22)
  have hmmu := (hm.mul hm).mul hu
  have large := c.m_not_too_large.of_holds (v := -(M * M * U) + 2 ^ 50) (by omega)
    (by have := (hmmu.const_sub 0).add_const (2 ^ 50); rwa [Int.zero_sub, Int.zero_sub] at this)
    (by omega) (by omega)
  have small := c.m_not_too_small.of_holds (by omega)
    (((hmmu.add ((hm.mul hu).mul_const 2)).add hu).sub_const (2 ^ 50 + 1)) (by omega) (by omega)
  have root : inverseRoot U = M := by
    have cast : (M.toNat : Int) = M := Int.toNat_of_nonneg M0
    have next : (M + 1) * (M + 1) * U = M * M * U + M * U * 2 + U := by
      simp only [Int.add_mul, Int.mul_add, Int.one_mul, Int.mul_one]
      omega
    unfold inverseRoot
    rw [largestRoot_spec (m := M.toNat) (by omega) (by omega) (by rw [cast]; omega) (by rw [cast, next]; omega), cast]
  have hf : f ≡ M * 2 ^ (20 - t) := (Cong.of_sub c.factor).trans (hm.mul hw2)
  have F := mul_bounds (a := M) (A := 2 ^ 16) (by omega) (by omega) (Int.le_of_lt (two_pow_pos (20 - t)))
    (two_pow_le (by omega : 20 - t ≤ 20))
  have F0 := Int.mul_nonneg M0 (Int.le_of_lt (two_pow_pos (20 - t)))
  unfold multiplier
  rw [← te, quot, rest, root]
  exact ⟨hz, hw4, hw2, hu, hr, hm, hf, F0, by omega⟩

/-- An element of the output. -/
def normalized (ss x : Int) (s : Nat) : Int := requant (x * multiplier ss) s

/-- The output of a norm: `x` has 24 bits with sign, `y` has 16. -/
theorem norm_output_unique {ss z w4 w2 u r m f x y : Int} {s : Nat} (hss : 0 ≤ ss ∧ ss < 2 ^ 62)
    (c : NormConstraints ss z w4 w2 u r m f) (hs : 17 ≤ s ∧ s ≤ 32) (hx : -(2 ^ 23) ≤ x ∧ x < 2 ^ 23)
    (range : Signed 16 y) (rem : Range s (x * f + 2 ^ (s - 1) - y * 2 ^ s)) :
    y ≡ normalized ss x s ∧ -(2 ^ 15) ≤ normalized ss x s ∧ normalized ss x s < 2 ^ 15 := by
  obtain ⟨-, -, -, -, -, -, hf, F0, F1⟩ := norm_unique hss c
  have b := mul_bounds (a := x) (A := 2 ^ 23) (by omega) (by omega) F0 F1
  exact requant_unique (by omega) (by decide) (by omega) range
    (rem.congr (((hf.const_mul x).add_const _).sub_const _))

end Zkmoe
