module
public import Row

/-!
The largest of a row of logits, `verifier/src/gadgets/argmax.rs`.

Entry `v` of a row of `n` has the key `logit n + (n - 1 - v)`. The relation marks one entry whose key is `mk` and
range-checks `mk - key` everywhere. Then the answer is the first place of the largest logit.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- Orders entries by logit, then by descending index. -/
def key (n : Nat) (logit : Nat → Int) (v : Nat) : Int := logit v * n + (n - 1 - v)

/-- Keys order logits, and among equal logits the lower index is ahead. -/
theorem key_order {n : Nat} {logit : Nat → Int} {v i : Nat} (hv : v < n)
    (h : key n logit v ≤ key n logit i) : logit v ≤ logit i ∧ (v < i → logit v < logit i) := by
  have step : ∀ a b : Int, a + 1 ≤ b → a * n + n ≤ b * n := by
    intro a b hab
    have := Int.mul_le_mul_of_nonneg_right hab (by omega : (0 : Int) ≤ n)
    rwa [Int.add_mul, Int.one_mul] at this
  unfold key at h
  constructor
  · rcases Int.lt_or_le (logit i) (logit v) with l | l
    · have := step _ _ l
      omega
    · exact l
  · intro hvi
    rcases Int.lt_or_le (logit v) (logit i) with l | l
    · exact l
    · rcases Int.lt_or_le (logit i) (logit v) with l' | l'
      · have := step _ _ l'
        omega
      · rw [show logit v = logit i by omega] at h
        omega

/-- Different entries have different keys. -/
theorem key_injective {n : Nat} {logit : Nat → Int} {v i : Nat} (hv : v < n) (hi : i < n)
    (h : key n logit v = key n logit i) : v = i := by
  have a := key_order hv (Int.le_of_eq h)
  have b := key_order hi (Int.le_of_eq h.symm)
  omega

theorem key_bounds {n : Nat} {logit : Nat → Int} {v : Nat} {L N : Int} (hv : v < n) (hN : (n : Int) ≤ N)
    (h : -L ≤ logit v ∧ logit v ≤ L) : -(L * N) ≤ key n logit v ∧ key n logit v < L * N + N := by
  have := mul_bounds h.1 h.2 (by omega : (0 : Int) ≤ n) hN
  unfold key
  omega

/-- What the relation states about one row of `n` logits; `width` is the number of bits of the range check. -/
structure ArgmaxConstraints (n width : Nat) (logit : Nat → Int) (mk token : Int) (z : Nat → Int) : Prop where
  none_above : ∀ v, v < n → Range width (mk - key n logit v)
  boolean : ∀ v, v < n → z v * z v - z v ≡ 0
  attained : ∀ v, v < n → z v * (mk - key n logit v) ≡ 0
  one : total n z - 1 ≡ 0
  answer : total n (fun v => z v * v) - token ≡ 0

theorem argmax_unique {n width : Nat} {logit : Nat → Int} {mk token : Int} {z : Nat → Int}
    (hn : n ≤ 2 ^ 20) (hw : width ≤ 48) (range : ∀ v, v < n → -(2 ^ 19) ≤ logit v ∧ logit v < 2 ^ 19)
    (c : ArgmaxConstraints n width logit mk token z) : token ≡ firstMax n logit := by
  obtain ⟨i, hi, marked, rest⟩ := one_hot (by omega) c.boolean (Cong.of_sub c.one)
  have hmk : mk ≡ key n logit i := by
    have h := (marked.mul_const (mk - key n logit i)).symm.trans (c.attained i hi)
    rw [Int.one_mul] at h
    exact Cong.of_sub h
  have bound : ∀ v, v < n → -(2 ^ 39) ≤ key n logit v ∧ key n logit v < 2 ^ 40 := by
    intro v hv
    have := range v hv
    have := key_bounds (logit := logit) (L := 2 ^ 19) (N := 2 ^ 20) hv (by omega) (by omega)
    omega
  have order : ∀ v, v < n → key n logit v ≤ key n logit i := by
    intro v hv
    have b1 := bound v hv
    have b2 := bound i hi
    have := (c.none_above v hv).of_holds hw (hmk.sub_const _) (by omega) (by omega)
    omega
  have found : firstMax n logit = i := firstMax_unique hi (fun j hj => (key_order hj (order j hj)).1)
    fun j hj => (key_order (by omega) (order j (by omega))).2 hj
  have sum : total n (fun v => z v * v) ≡ i := total_of_single hi
    (by have := marked.mul_const i; rwa [Int.one_mul] at this)
    fun j hj ne => by have := (rest j hj ne).mul_const j; rwa [Int.zero_mul] at this
  rw [found]
  exact (Cong.of_sub c.answer).symm.trans sum

end Zkmoe
