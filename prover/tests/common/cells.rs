//! The cells of a witness by the name of their tensor and their indices, as signed integers.

use zkmoe_commit::field::{F, MODULUS, from_i64, word};
use zkmoe_prover::engine::Witness;
use zkmoe_verifier::relation::{Dims, Label, Relation};

/// A witness with what is needed to find a cell in it.
pub struct Cells<'a> {
    /// The relation.
    pub relation: &'a Relation,
    /// The sizes.
    pub dims: &'a Dims,
    /// The tensors.
    pub witness: &'a mut Witness,
}

/// The signed integer nearest to a residue.
pub fn signed(x: F) -> i64 {
    let w = word(x);
    if w > MODULUS / 2 {
        w.wrapping_sub(MODULUS) as i64
    } else {
        w as i64
    }
}

/// The indices of a cell of an index set.
pub fn indices(dims: &Dims, labels: &[Label], cell: usize) -> Vec<usize> {
    let shape = dims.shape(labels);
    let mut rest = cell;
    for (group, sizes) in shape.groups().iter().enumerate() {
        let volume: usize = sizes.iter().product();
        if rest < volume {
            let mut index = Vec::new();
            for &n in sizes.iter().rev() {
                index.push(rest % n);
                rest /= n;
            }
            index.extend(shape.is_grouped().then_some(group));
            index.reverse();
            return index;
        }
        rest -= volume;
    }
    panic!("cell {cell} does not exist")
}

impl Cells<'_> {
    /// The number of a tensor.
    pub fn tensor(&self, name: &str) -> usize {
        let found = self.relation.tensor(name);
        found.unwrap_or_else(|| panic!("no tensor {name}"))
    }

    /// The place of the first cell under some leading indices, and how many there are.
    fn place(&self, name: &str, index: &[usize]) -> (usize, usize, usize) {
        let tensor = self.tensor(name);
        let shape = self.dims.shape(&self.relation.tensors[tensor].axes);
        let grouped = usize::from(shape.is_grouped());
        let (group, inner) = index.split_at(grouped.min(index.len()));
        let group = group.first().copied().unwrap_or(0);
        let volume = |sizes: &[usize]| sizes.iter().product::<usize>();
        let groups = shape.groups();
        let mut start: usize = groups[..group].iter().map(|s| volume(s)).sum();
        let sizes = &groups[group];
        for (axis, &i) in inner.iter().enumerate() {
            assert!(i < sizes[axis], "{name}{index:?} does not exist");
            start += i * volume(&sizes[axis + 1..]);
        }
        (tensor, start, volume(&sizes[inner.len()..]))
    }

    /// The indices of a cell.
    pub fn indices(&self, tensor: usize, cell: usize) -> Vec<usize> {
        indices(self.dims, &self.relation.tensors[tensor].axes, cell)
    }

    /// One cell.
    pub fn get(&self, name: &str, index: &[usize]) -> i64 {
        let (tensor, cell, _) = self.place(name, index);
        signed(self.witness.tensors[tensor][0][cell])
    }

    /// All cells under some leading indices.
    pub fn slice(&self, name: &str, index: &[usize]) -> Vec<i64> {
        let (tensor, start, len) = self.place(name, index);
        let cells = &self.witness.tensors[tensor][0][start..start + len];
        cells.iter().map(|&x| signed(x)).collect()
    }

    /// Sets one cell.
    pub fn set(&mut self, name: &str, index: &[usize], value: i64) {
        let (tensor, cell, _) = self.place(name, index);
        self.witness.tensors[tensor][0][cell] = from_i64(value);
    }

    /// Sets all cells under some leading indices.
    pub fn set_slice<T: Copy + Into<i64>>(&mut self, name: &str, index: &[usize], values: &[T]) {
        let (tensor, start, len) = self.place(name, index);
        assert_eq!(values.len(), len, "{name}{index:?}");
        let cells = &mut self.witness.tensors[tensor][0][start..start + len];
        for (cell, &value) in cells.iter_mut().zip(values) {
            *cell = from_i64(value.into());
        }
    }

    /// Adds to a cell's residue; `component` 1 is the second component of a tensor over the extension.
    pub fn add(&mut self, name: &str, component: usize, index: &[usize], value: F) {
        let (tensor, cell, _) = self.place(name, index);
        self.witness.tensors[tensor][component][cell] += value;
    }

    /// The id of a token.
    pub fn token_id(&self, request: usize, position: usize) -> i64 {
        (request << self.dims.token_id_bits() | position) as i64
    }

    /// Block and row of every real row that serves a token in a layer.
    pub fn rows(&self, layer: usize, id: i64) -> Vec<(usize, usize)> {
        let mut rows = Vec::new();
        for (a, &(l, _, load)) in self.dims.batch().blocks.iter().enumerate() {
            let serves = |n: &usize| {
                self.get("row.tok", &[a, *n]) == id && self.get("row.real", &[a, *n]) == 1
            };
            if l == layer {
                rows.extend((0..load).filter(serves).map(|n| (a, n)));
            }
        }
        rows
    }

    /// A row of a block that serves nobody.
    pub fn free_row(&self, block: usize) -> Option<usize> {
        (0..self.dims.batch().blocks[block].2).find(|&n| self.get("row.real", &[block, n]) == 0)
    }

    /// The decoded row of a token.
    pub fn decoded_row(&self, id: i64) -> Option<usize> {
        (0..self.dims.batch().decoded)
            .find(|&m| self.get("dr.id", &[m]) == id && self.get("dr.real", &[m]) == 1)
    }
}
