module
public import Dispatch
public import Argmax

/-!
Decode, `verifier/src/gadgets/decode.rs`: every decoded position has, as its next token, the argmax of the logits of
its own vector.

The two sides of the lookup are the positions with `dec = 1` and the rows of the head with `real = 1`; a tuple is
token id, vector and token. `logits` is what norm and head compute from a vector.
-/

@[expose] public section

namespace Zkmoe

local infix:50 " ≡ " => Cong

/-- `n` positions, `m` rows of the head, a vocabulary of `vocab`. Vectors are of any type with equality, tokens
are taken as the integers that their cells hold. -/
theorem decode_unique {Vector : Type} [DecidableEq Vector] {n m vocab : Nat} {dec real : Nat → Int}
    {id rowId : Nat → Nat} {x rowX : Nat → Vector} {next answer : Nat → Nat} {logits : Vector → Nat → Int}
    (hn : n ≤ 2 ^ 32) (hm : m ≤ 2 ^ 32) (ids : ∀ i j, i < n → j < n → id i = id j → i = j)
    (c : MatchConstraints n m dec real (fun i => (id i, x i, next i)) (fun j => (rowId j, rowX j, answer j)))
    (argmax : ∀ j, j < m → answer j = firstMax vocab (logits (rowX j))) :
    ∀ i, i < n → dec i ≡ 1 → next i = firstMax vocab (logits (x i)) := by
  intro i hi hd
  obtain ⟨j, hj, -, e, -⟩ := (match_unique hn hm (fun i j hi hj e => ids i j hi hj (congrArg Prod.fst e)) c).1 i hi hd
  have ex : rowX j = x i := congrArg (fun t => t.2.1) e
  have ea : answer j = next i := congrArg (fun t => t.2.2) e
  rw [← ea, argmax j hj, ex]

end Zkmoe
