module
public import Requant

/-!
The gated activation of an expert, `verifier/src/gadgets/activation.rs`.

Three requantizations around a table of all 16-bit inputs. The cell `eg` has no range check of its own: being found in
the table is one.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- Entry `i` of the table belongs to the input `i - 2^15`. -/
def activation (table : Nat → Int) (x : Int) : Int := table (x + 2 ^ 15).toNat

/-- What the relation states about one inner cell; `gate` and `up` are the accumulators of the projections. -/
structure ActivationConstraints (table : Nat → Int) (gate up : Int) (gs us ps : Nat) (eg ea eu eh : Int) : Prop where
  table_line : ∃ i : Nat, i < 65536 ∧ eg + 2 ^ 15 ≡ i ∧ ea ≡ table i
  gate_rem : Range gs (gate + 2 ^ (gs - 1) - eg * 2 ^ gs)
  up_range : Signed 16 eu
  up_rem : Range us (up + 2 ^ (us - 1) - eu * 2 ^ us)
  product_range : Signed 16 eh
  product_rem : Range ps (ea * eu + 2 ^ (ps - 1) - eh * 2 ^ ps)

theorem activation_unique {table : Nat → Int} {gate up : Int} {gs us ps : Nat} {eg ea eu eh : Int}
    (htable : ∀ i, i < 65536 → -(2 ^ 15) ≤ table i ∧ table i < 2 ^ 15)
    (hgs : 1 ≤ gs ∧ gs ≤ 16) (hus : 1 ≤ us ∧ us ≤ 16) (hps : 1 ≤ ps ∧ ps ≤ 16)
    (hgate : -(2 ^ 62) < gate ∧ gate < 2 ^ 62) (hup : -(2 ^ 62) < up ∧ up < 2 ^ 62)
    (c : ActivationConstraints table gate up gs us ps eg ea eu eh) :
    eg ≡ requant gate gs ∧ ea ≡ activation table (requant gate gs) ∧ eu ≡ requant up us ∧
    eh ≡ requant (activation table (requant gate gs) * requant up us) ps := by
  obtain ⟨i, hi, hidx, hea⟩ := c.table_line
  have heg : eg ≡ i - 2 ^ 15 := by
    have := hidx.sub_const (2 ^ 15)
    rwa [Int.add_sub_cancel] at this
  have eg' := requant_holds (by omega) hgate heg (by omega) c.gate_rem
  have place : activation table (requant gate gs) = table i := by
    unfold activation
    rw [← eg', show Int.toNat ((i : Int) - 2 ^ 15 + 2 ^ 15) = i by omega]
  have ⟨heu, u0, u1⟩ := requant_unique (by omega) (by decide) hup c.up_range c.up_rem
  have ht := htable i hi
  have product := product_bounds (a := table i) (A := 2 ^ 15) (b := requant up us) (B := 2 ^ 15) (by omega) (by omega)
  have heh := requant_unique (acc := table i * requant up us) (by omega) (by decide) (by omega) c.product_range
    (c.product_rem.congr (((hea.mul heu).add_const _).sub_const _))
  rw [place]
  exact ⟨eg' ▸ heg, hea, heu, heh.1⟩

end Zkmoe
