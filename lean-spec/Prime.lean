module
public import Field

/-!
`p` is prime, so a product of cells is zero only if a factor is. Boolean cells need this, and nothing else does.

`p - 1 = (2^32 - 1) 2^32`, and there is a `g` with `g^(2^31) ≡ -1`, found by squaring 31 times. Modulo any divisor
`q > 1` of `p` that equation still holds, so the `2^32` powers of `g` differ modulo `q`, and `q >= 2^32`. Two such
factors have a product of at least `2^64`, more than `p`.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- `n` squarings of `x` modulo `m`. -/
def squarings (m : Nat) : Nat → Nat → Nat
  | 0, x => x
  | n + 1, x => squarings m n (x * x % m)

theorem squarings_mod (m n x : Nat) : squarings m n x % m = x ^ 2 ^ n % m := by
  induction n generalizing x with
  | zero => simp [squarings]
  | succ n ih =>
    rw [squarings, ih, ← Nat.pow_mod, ← Nat.pow_two, ← Nat.pow_mul, Nat.pow_succ, Nat.mul_comm 2]

/-- A map from `N` numbers to `q` numbers that keeps them apart needs `N ≤ q`. -/
theorem pigeonhole (q : Nat) : ∀ (N : Nat) (f : Nat → Nat), (∀ i, i < N → f i < q) →
    (∀ i j, i < N → j < N → f i = f j → i = j) → N ≤ q := by
  induction q with
  | zero =>
    intro N f low _
    rcases Nat.eq_zero_or_pos N with h | h
    · omega
    · have := low 0 h; omega
  | succ q ih =>
    intro N f low inj
    match N, low, inj with
    | 0, _, _ => omega
    | M + 1, low, inj =>
      refine Nat.succ_le_succ (ih M (fun i => if f i = q then f M else f i) ?_ ?_)
      · intro i hi
        have hi' := low i (by omega)
        have hM := low M (by omega)
        have hne := inj i M (by omega) (by omega)
        show (if f i = q then f M else f i) < q
        split <;> omega
      · intro i j hi hj h
        have a := inj i j (by omega) (by omega)
        have b := inj i M (by omega) (by omega)
        have c := inj j M (by omega) (by omega)
        have h : (if f i = q then f M else f i) = (if f j = q then f M else f j) := h
        split at h <;> split at h <;> omega

theorem dvd_pow_sub {q a b : Int} (h : q ∣ a - b) (k : Nat) : q ∣ a ^ k - b ^ k := by
  induction k with
  | zero => simp
  | succ k ih =>
    have e : a ^ (k + 1) - b ^ (k + 1) = (a ^ k - b ^ k) * a + b ^ k * (a - b) := by
      rw [Int.pow_succ, Int.pow_succ, Int.sub_mul, Int.mul_sub]; omega
    rw [e]
    exact Int.dvd_add (Int.dvd_mul_of_dvd_left ih) (Int.dvd_mul_of_dvd_right h)

/-- Every positive number is a power of two times an odd number. -/
theorem odd_part (d : Nat) (h : 0 < d) : ∃ t m, d = 2 ^ t * (2 * m + 1) := by
  induction d using Nat.strongRecOn with
  | ind d ih =>
    rcases Nat.mod_two_eq_zero_or_one d with h' | h'
    · obtain ⟨t, m, e⟩ := ih (d / 2) (by omega) (by omega)
      refine ⟨t + 1, m, ?_⟩
      rw [Nat.pow_succ, Nat.mul_comm (2 ^ t) 2, Nat.mul_assoc, ← e]
      omega
    · exact ⟨0, d / 2, by rw [Nat.pow_zero]; omega⟩

theorem neg_one_pow_odd (m : Nat) : (-1 : Int) ^ (2 * m + 1) = -1 := by
  induction m with
  | zero => decide
  | succ m ih =>
    rw [show 2 * (m + 1) + 1 = 2 * m + 1 + 1 + 1 by omega, Int.pow_succ, Int.pow_succ, ih]
    decide

theorem le_of_root {q : Int} {n : Nat} {g : Int} (odd : ¬ q ∣ 2) (h : q ∣ g ^ 2 ^ n - -1) (d : Nat)
    (low : 0 < d) (high : d < 2 ^ (n + 1)) : ¬ q ∣ g ^ d - 1 := by
  intro one
  obtain ⟨t, m, e⟩ := odd_part d low
  have ht : t ≤ n := by
    have : 2 ^ t < 2 ^ (n + 1) := by
      have : 2 ^ t * 1 ≤ 2 ^ t * (2 * m + 1) := Nat.mul_le_mul_left _ (by omega)
      omega
    have := (Nat.pow_lt_pow_iff_right (by omega : 1 < 2)).mp this
    omega
  have a := dvd_pow_sub one (2 ^ (n - t))
  have b := dvd_pow_sub h (2 * m + 1)
  have exponent : d * 2 ^ (n - t) = 2 ^ n * (2 * m + 1) := by
    rw [e, Nat.mul_right_comm, ← Nat.pow_add, show t + (n - t) = n by omega]
  rw [← Int.pow_mul, exponent, Int.one_pow] at a
  rw [← Int.pow_mul, neg_one_pow_odd] at b
  have c := Int.dvd_sub b a
  rw [show g ^ (2 ^ n * (2 * m + 1)) - -1 - (g ^ (2 ^ n * (2 * m + 1)) - 1) = 2 by omega] at c
  exact odd c

theorem divisor_large {q n g : Nat} (pos : 0 < q) (odd : ¬ (q : Int) ∣ 2)
    (h : (q : Int) ∣ (g : Int) ^ 2 ^ n - -1) : 2 ^ (n + 1) ≤ q := by
  have square : (q : Int) ∣ (g : Int) ^ 2 ^ (n + 1) - 1 := by
    have := dvd_pow_sub h 2
    rwa [← Int.pow_mul, ← Nat.pow_succ, show (-1 : Int) ^ 2 = 1 by decide] at this
  have apart : ∀ i j, i < j → j < 2 ^ (n + 1) → g ^ i % q ≠ g ^ j % q := by
    intro i j hij hj same
    have a : (q : Int) ∣ (g : Int) ^ j - (g : Int) ^ i := by
      have e : ((g ^ i : Nat) : Int) % q = ((g ^ j : Nat) : Int) % q := by
        rw [← Int.natCast_emod, ← Int.natCast_emod, same]
      rw [Int.natCast_pow, Int.natCast_pow] at e
      have ei := Int.emod_add_mul_ediv ((g : Int) ^ i) q
      have ej := Int.emod_add_mul_ediv ((g : Int) ^ j) q
      exact ⟨(g : Int) ^ j / q - (g : Int) ^ i / q, by rw [Int.mul_sub]; omega⟩
    have b := Int.dvd_trans a (Int.dvd_mul_left ((g : Int) ^ (2 ^ (n + 1) - i)) _)
    rw [Int.mul_sub, ← Int.pow_add, ← Int.pow_add, show 2 ^ (n + 1) - i + j = 2 ^ (n + 1) + (j - i) by omega,
      show 2 ^ (n + 1) - i + i = 2 ^ (n + 1) by omega, Int.pow_add] at b
    have c := Int.dvd_trans square (Int.dvd_mul_right _ ((g : Int) ^ (j - i)))
    rw [Int.sub_mul, Int.one_mul] at c
    have d := Int.dvd_add (Int.dvd_sub b c) square
    refine le_of_root odd h (j - i) (by omega) (by omega) ?_
    rwa [show ∀ x y z : Int, x - y - (x - z) + (y - 1) = z - 1 by intros; omega] at d
  refine pigeonhole q _ (fun i => g ^ i % q) (fun i _ => Nat.mod_lt _ pos) ?_
  intro i j hi hj same
  rcases Nat.lt_trichotomy i j with l | l | l
  · exact absurd same (apart i j l hj)
  · exact l
  · exact absurd same.symm (apart j i l hi)

/-- Proth's test. -/
theorem proth {m n g : Nat} (h : squarings m n g = m - 1) (one : 1 < m) (odd : m % 2 = 1)
    (small : m < 2 ^ (n + 1) * 2 ^ (n + 1)) (q : Nat) (hq : q ∣ m) : q = 1 ∨ q = m := by
  have root : (m : Int) ∣ (g : Int) ^ 2 ^ n - -1 := by
    have e := squarings_mod m n g
    rw [h, Nat.mod_eq_of_lt (by omega : m - 1 < m)] at e
    have d := Nat.div_add_mod (g ^ 2 ^ n) m
    rw [← e] at d
    have z : g ^ 2 ^ n + 1 = m * (g ^ 2 ^ n / m + 1) := by rw [Nat.mul_add]; omega
    have : m ∣ g ^ 2 ^ n + 1 := ⟨_, z⟩
    have := Int.natCast_dvd_natCast.mpr this
    rw [Int.natCast_add, Int.natCast_pow] at this
    rwa [Int.sub_neg]
  have large : ∀ r : Nat, r ∣ m → r ≠ 1 → 2 ^ (n + 1) ≤ r := by
    intro r hr ne
    have pos : 0 < r := Nat.pos_of_dvd_of_pos hr (by omega)
    refine divisor_large pos ?_ (Int.dvd_trans (Int.natCast_dvd_natCast.mpr hr) root)
    intro two
    have two : r ∣ 2 := Int.natCast_dvd_natCast.mp two
    have := Nat.le_of_dvd (by omega) two
    have : r = 2 := by omega
    obtain ⟨c, hc⟩ := hr
    rw [this] at hc
    omega
  obtain ⟨r, hr⟩ := hq
  by_cases h1 : q = 1
  · exact Or.inl h1
  by_cases h2 : r = 1
  · exact Or.inr (by rw [hr, h2, Nat.mul_one])
  have := Nat.mul_le_mul (large q ⟨r, hr⟩ h1) (large r ⟨q, by rw [hr, Nat.mul_comm]⟩ h2)
  omega

theorem p_prime (q : Nat) (h : q ∣ 18446744069414584321) : q = 1 ∨ q = 18446744069414584321 :=
  proth (n := 31) (g := 1753635133440165772) (by decide) (by decide) (by decide) (by decide) q h

/-- A product is zero only if a factor is. -/
theorem zero_or_zero {a b : Int} (h : a * b ≡ 0) : a ≡ 0 ∨ b ≡ 0 := by
  obtain ⟨k, hk⟩ := h
  have hd : (p.natAbs) ∣ a.natAbs * b.natAbs := by
    rw [← Int.natAbs_mul]
    exact Int.natAbs_dvd_natAbs.mpr ⟨k, by omega⟩
  have back : ∀ c : Int, p.natAbs ∣ c.natAbs → c ≡ 0 := by
    intro c hc
    obtain ⟨l, hl⟩ := Int.natAbs_dvd_natAbs.mp hc
    exact ⟨l, by omega⟩
  rcases p_prime (Nat.gcd p.natAbs a.natAbs) (Nat.gcd_dvd_left _ _) with g | g
  · exact Or.inr (back b (Nat.Coprime.dvd_of_dvd_mul_left g hd))
  · exact Or.inl (back a (by have := Nat.gcd_dvd_right p.natAbs a.natAbs; rw [g] at this; exact this))

/-- The relation's constraint on a mark: the cell holds 0 or 1. -/
theorem boolean {z : Int} (h : z * z - z ≡ 0) : z ≡ 0 ∨ z ≡ 1 := by
  have e : z * z - z = z * (z - 1) := by rw [Int.mul_sub, Int.mul_one]
  rw [e] at h
  rcases zero_or_zero h with h | h
  · exact Or.inl h
  · obtain ⟨k, hk⟩ := h
    exact Or.inr ⟨k, by omega⟩

end Zkmoe
