module

/-!
From equations modulo `p` to integers.

A committed cell is a residue modulo `p = 2^64 - 2^32 + 1`. Here it is any integer that stands for its residue class,
`a ≡ b` says that two of them stand for the same class. A cell *holds* an integer `n` if it is `≡ n`.

Two facts carry every gadget. Congruent integers that are less than `p` apart are equal (`eq_of_cong`). And a cell
that passes a range check holds an integer in that range (`Range`), also if the check is made digit by digit in base
`2^16` (`range_of_two`, `range_of_three`). `Prime.lean` adds that a product is zero only if a factor is.
-/

@[expose] public section

namespace Zkmoe

/-- The order of the field. -/
def p : Int := 18446744069414584321

theorem p_value : p = 2 ^ 64 - 2 ^ 32 + 1 := by decide

/-- Equality modulo `p`. -/
def Cong (a b : Int) : Prop := ∃ k : Int, a - b = p * k

local infix:50 " ≡ " => Cong

theorem eq_of_cong {a b : Int} (h : a ≡ b) (above : a - b < p) (below : b - a < p) : a = b := by
  obtain ⟨k, hk⟩ := h
  simp only [p] at *
  omega

theorem Cong.refl (a : Int) : a ≡ a := ⟨0, by simp⟩

theorem Cong.of_eq {a b : Int} (h : a = b) : a ≡ b := h ▸ Cong.refl a

theorem Cong.symm {a b : Int} (h : a ≡ b) : b ≡ a := by
  obtain ⟨k, hk⟩ := h
  exact ⟨-k, by simp only [p] at *; omega⟩

theorem Cong.trans {a b c : Int} (h : a ≡ b) (h' : b ≡ c) : a ≡ c := by
  obtain ⟨k, hk⟩ := h
  obtain ⟨l, hl⟩ := h'
  exact ⟨k + l, by simp only [p] at *; omega⟩

theorem Cong.add {a b c d : Int} (h : a ≡ b) (h' : c ≡ d) : a + c ≡ b + d := by
  obtain ⟨k, hk⟩ := h
  obtain ⟨l, hl⟩ := h'
  exact ⟨k + l, by simp only [p] at *; omega⟩

theorem Cong.sub {a b c d : Int} (h : a ≡ b) (h' : c ≡ d) : a - c ≡ b - d := by
  obtain ⟨k, hk⟩ := h
  obtain ⟨l, hl⟩ := h'
  exact ⟨k - l, by simp only [p] at *; omega⟩

theorem Cong.mul {a b c d : Int} (h : a ≡ b) (h' : c ≡ d) : a * c ≡ b * d := by
  obtain ⟨k, hk⟩ := h
  obtain ⟨l, hl⟩ := h'
  refine ⟨k * c + b * l, ?_⟩
  have e1 : (a - b) * c = p * (k * c) := by rw [hk, Int.mul_assoc]
  have e2 : b * (c - d) = p * (b * l) := by rw [hl, ← Int.mul_assoc, Int.mul_comm b p, Int.mul_assoc]
  rw [Int.mul_add, ← e1, ← e2, Int.sub_mul, Int.mul_sub]
  omega

theorem Cong.add_const {a b : Int} (h : a ≡ b) (c : Int) : a + c ≡ b + c := h.add (Cong.refl c)
theorem Cong.sub_const {a b : Int} (h : a ≡ b) (c : Int) : a - c ≡ b - c := h.sub (Cong.refl c)
theorem Cong.const_sub {a b : Int} (c : Int) (h : a ≡ b) : c - a ≡ c - b := (Cong.refl c).sub h
theorem Cong.mul_const {a b : Int} (h : a ≡ b) (c : Int) : a * c ≡ b * c := h.mul (Cong.refl c)
theorem Cong.const_mul {a b : Int} (c : Int) (h : a ≡ b) : c * a ≡ c * b := (Cong.refl c).mul h

/-- An equation of the relation, `a - b ≡ 0`, is `a ≡ b`. -/
theorem Cong.of_sub {a b : Int} (h : a - b ≡ 0) : a ≡ b := by
  obtain ⟨k, hk⟩ := h
  exact ⟨k, by omega⟩

theorem cong_emod (a : Int) : a ≡ a % p := by
  refine ⟨a / p, ?_⟩
  have := Int.emod_add_mul_ediv a p
  omega

theorem emod_p_bounds (a : Int) : 0 ≤ a % p ∧ a % p < p := by
  simp only [p]
  omega

/-! ## Powers of two -/

theorem two_pow_pos (s : Nat) : (0 : Int) < 2 ^ s := by
  induction s with
  | zero => decide
  | succ s ih => rw [Int.pow_succ]; omega

theorem two_pow_le {s t : Nat} (h : s ≤ t) : (2 : Int) ^ s ≤ 2 ^ t := by
  induction t with
  | zero => rw [Nat.le_zero.mp h]; exact Int.le_refl _
  | succ t ih =>
    rcases Nat.lt_or_ge t s with h' | h'
    · rw [show s = t + 1 by omega]; exact Int.le_refl _
    · have := ih h'
      have := two_pow_pos t
      rw [Int.pow_succ]
      omega

/-- Half of a power of two, as it occurs in signed ranges and in rounding. -/
theorem two_pow_half {s : Nat} (h : 1 ≤ s) : (2 : Int) ^ s = 2 ^ (s - 1) * 2 := by
  have e : (2 : Int) ^ (s - 1 + 1) = 2 ^ (s - 1) * 2 := Int.pow_succ 2 (s - 1)
  rwa [show s - 1 + 1 = s by omega] at e

/-- A product of a bounded integer and a bounded one that is not negative. -/
theorem mul_bounds {a b A B : Int} (h1 : -A ≤ a) (h2 : a ≤ A) (h3 : 0 ≤ b) (h4 : b ≤ B) :
    -(A * B) ≤ a * b ∧ a * b ≤ A * B := by
  have hA : 0 ≤ A := by omega
  have l1 := Int.mul_le_mul_of_nonneg_right h2 h3
  have l2 := Int.mul_le_mul_of_nonneg_right h1 h3
  have l3 := Int.mul_le_mul_of_nonneg_left h4 hA
  rw [Int.neg_mul] at l2
  omega

/-- A product of two integers is bounded by that of their bounds, whatever the signs. -/
theorem product_bounds {a b A B : Int} (ha : -A ≤ a ∧ a ≤ A) (hb : -B ≤ b ∧ b ≤ B) :
    -(A * B) ≤ a * b ∧ a * b ≤ A * B := by
  rcases Int.le_total 0 b with h | h
  · exact mul_bounds ha.1 ha.2 h hb.2
  · have := mul_bounds ha.1 ha.2 (by omega : 0 ≤ -b) (by omega : -b ≤ B)
    rw [Int.mul_neg] at this
    omega

/-! ## Range checks -/

/-- The cell passes a range check of `bits` bits: it holds an integer in `0..2^bits`. For one digit this is what the
lookup in the public table of that range says. -/
def Range (bits : Nat) (x : Int) : Prop := ∃ n : Int, 0 ≤ n ∧ n < 2 ^ bits ∧ x ≡ n

/-- A check of 17 to 32 bits: one committed digit, and what it leaves. -/
theorem range_of_two {b : Nat} {x d : Int} (low : Range 16 (x - d * 2 ^ 16)) (high : Range b d) :
    Range (b + 16) x := by
  obtain ⟨n, hn0, hn1, k, hk⟩ := low
  obtain ⟨m, hm0, hm1, l, hl⟩ := high
  refine ⟨n + m * 65536, by omega, ?_, k + l * 65536, ?_⟩
  · rw [Int.pow_add]; omega
  · simp only [p] at *; omega

/-- A check of 33 to 48 bits: two committed digits, and what they leave. -/
theorem range_of_three {b : Nat} {x d e : Int} (low : Range 16 (x - d * 2 ^ 16 - e * 2 ^ 32))
    (middle : Range 16 d) (high : Range b e) : Range (b + 32) x := by
  obtain ⟨n, hn0, hn1, k, hk⟩ := low
  obtain ⟨m, hm0, hm1, l, hl⟩ := middle
  obtain ⟨o, ho0, ho1, j, hj⟩ := high
  refine ⟨n + m * 65536 + o * 4294967296, by omega, ?_, k + l * 65536 + j * 4294967296, ?_⟩
  · rw [Int.pow_add]; omega
  · simp only [p] at *; omega

/-- If a cell that passes a range check holds the integer `v`, and `v` is not near `p` in magnitude, then `v` itself is
in the range. This is how a comparison of integers follows from a lookup. -/
theorem Range.of_holds {bits : Nat} {x v : Int} (h : Range bits x) (hb : bits ≤ 48) (hv : x ≡ v)
    (low : -(3 * 2 ^ 62) ≤ v) (high : v ≤ 3 * 2 ^ 62) : 0 ≤ v ∧ v < 2 ^ bits := by
  obtain ⟨n, h0, h1, hn⟩ := h
  have hle := two_pow_le hb
  have : v = n := eq_of_cong (hv.symm.trans hn) (by simp only [p]; omega) (by simp only [p]; omega)
  omega

/-- A range check speaks about the residue. -/
theorem Range.congr {bits : Nat} {x y : Int} (h : Range bits x) (e : x ≡ y) : Range bits y := by
  obtain ⟨n, h0, h1, hn⟩ := h
  exact ⟨n, h0, h1, e.symm.trans hn⟩

/-- A signed range check, as the relation writes it. -/
def Signed (bits : Nat) (x : Int) : Prop := Range bits (x + 2 ^ (bits - 1))

/-- The cell holds an integer with `bits` bits and a sign. -/
theorem Signed.holds {bits : Nat} {x : Int} (h : Signed bits x) (hb : 1 ≤ bits) :
    ∃ n : Int, -(2 ^ (bits - 1)) ≤ n ∧ n < 2 ^ (bits - 1) ∧ x ≡ n := by
  obtain ⟨n, h0, h1, k, hk⟩ := h
  rw [two_pow_half hb] at h1
  exact ⟨n - 2 ^ (bits - 1), by omega, by omega, k, by omega⟩

end Zkmoe
