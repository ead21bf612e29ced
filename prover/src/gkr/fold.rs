//! How ragged arrays fold: which cells are partners along each variable, in tasks for threads.

use rayon::prelude::*;
use zkmoe_commit::shape::Shape;

use super::Node;

/// Pairs of cells that one task works on; a multiple of the size of a low table of [`Eq`].
pub(super) const CHUNK: usize = 1 << 12;
/// The index set of one column in the form in which it folds.
#[derive(Debug)]
pub(super) struct Geometry {
    /// The number of its lowest variable.
    pub(super) base: usize,
    /// Bits of each axis but the group axis, outermost first; none is 0.
    pub(super) bits: Vec<usize>,
    pub(super) group_bits: usize,
    /// For each group the sizes of the axes; none is 0, and no group is missing.
    pub(super) sizes: Vec<Vec<usize>>,
}

/// Which axis a variable belongs to.
pub(super) enum Position {
    /// This axis, whose variables from `start` are folded and which ends before variable `end`.
    Axis {
        axis: usize,
        start: usize,
        end: usize,
    },
    /// The group axis, or beyond.
    Group { start: usize, end: usize },
}

impl Geometry {
    pub(super) fn new(shape: &Shape) -> Self {
        let mut bits: Vec<usize> = shape.bits().iter().map(|&b| b as usize).collect();
        let mut group_bits = 0;
        let mut sizes = shape.groups();
        if shape.is_grouped() {
            group_bits = bits.remove(0);
        }
        if sizes.is_empty() {
            sizes.push(vec![1; bits.len()]);
        }
        // A group without cells is held as one neutral cell.
        for group in sizes.iter_mut().filter(|g| g.contains(&0)) {
            group.fill(1);
        }
        if sizes.windows(2).all(|w| w[0] == w[1]) {
            let groups = sizes.len();
            sizes.truncate(1);
            sizes[0].insert(0, groups);
            bits.insert(0, group_bits);
            group_bits = 0;
        }
        // Neighbours whose inner size is exactly its power of two are one longer axis; an axis of one cell is none.
        for axis in (0..bits.len()).rev() {
            if bits[axis] == 0 {
                bits.remove(axis);
                for group in &mut sizes {
                    group.remove(axis);
                }
            } else if axis + 1 < bits.len()
                && sizes.iter().all(|s| s[axis + 1] == 1 << bits[axis + 1])
            {
                bits[axis] += bits.remove(axis + 1);
                for group in &mut sizes {
                    group[axis] *= group.remove(axis + 1);
                }
            }
        }
        Self {
            base: 0,
            bits,
            group_bits,
            sizes,
        }
    }

    pub(super) fn position(&self, variable: usize) -> Position {
        let mut start = self.base;
        for (axis, &bits) in self.bits.iter().enumerate().rev() {
            let end = start + bits;
            if variable < end {
                return Position::Axis { axis, start, end };
            }
            start = end;
        }
        Position::Group {
            start,
            end: start + self.group_bits,
        }
    }

    /// The cells that are left when all variables below this one are folded.
    pub(super) fn level(&self, variable: usize) -> Level {
        // A column that has only one cell left may be folded any number of times.
        let left = |n: usize, folded: usize| {
            (n - 1)
                .checked_shr(folded as u32)
                .map_or(1, |high| high + 1)
        };
        let groups: Vec<(usize, usize)> = match self.position(variable) {
            Position::Axis { axis, start, .. } => self
                .sizes
                .iter()
                .map(|s| (s[..axis].iter().product(), left(s[axis], variable - start)))
                .collect(),
            Position::Group { start, .. } => vec![(1, left(self.sizes.len(), variable - start))],
        };
        Level::new(&groups)
    }
}

/// Cells in runs along one axis, which fold in pairs.
pub(super) struct Level {
    pub(super) tasks: Vec<Task>,
    /// Number of cells.
    pub(super) input: usize,
    /// Number of pairs, a cell without a partner counting as one.
    pub(super) output: usize,
    /// The largest number of pairs in a run.
    pub(super) longest: usize,
    /// Whether the partner of cell `2 i` is simply cell `2 i + 1`.
    pub(super) aligned: bool,
}

/// Neighbouring runs of one group, or a part of one run.
pub(super) struct Task {
    pub(super) group: usize,
    pub(super) first_run: usize,
    pub(super) runs: usize,
    /// Where in its run the task starts, in pairs; 0 unless there is a single run.
    pub(super) first_pair: usize,
    /// Cells of each run.
    pub(super) cells: usize,
    /// Where the task's cells start among all cells.
    pub(super) input: usize,
    /// Where its pairs start among all pairs.
    pub(super) output: usize,
}

impl Task {
    pub(super) fn pairs(&self) -> usize {
        self.cells.div_ceil(2)
    }
}

impl Level {
    /// From the number of runs and their length for each group.
    fn new(groups: &[(usize, usize)]) -> Self {
        let (mut tasks, mut input, mut output) = (Vec::new(), 0, 0);
        for (group, &(runs, cells)) in groups.iter().enumerate() {
            let pairs = cells.div_ceil(2);
            let (mut first_run, mut first_pair) = (0, 0);
            while first_run < runs {
                let mut task = Task {
                    group,
                    first_run,
                    runs: 1,
                    first_pair,
                    cells,
                    input,
                    output,
                };
                if pairs > CHUNK {
                    task.cells = (cells - 2 * first_pair).min(2 * CHUNK);
                    first_pair += task.pairs();
                    if first_pair == pairs {
                        (first_run, first_pair) = (first_run + 1, 0);
                    }
                } else {
                    task.runs = (CHUNK / pairs).min(runs - first_run);
                    first_run += task.runs;
                }
                input += task.runs * task.cells;
                output += task.runs * task.pairs();
                tasks.push(task);
            }
        }
        Self {
            tasks,
            input,
            output,
            aligned: matches!(groups, [(1, _)]) || groups.iter().all(|g| g.1 % 2 == 0),
            longest: groups.iter().map(|g| g.1.div_ceil(2)).max().unwrap_or(0),
        }
    }

    /// `f` of every pair.
    pub(super) fn pairs<T>(
        &self,
        read: impl Fn(usize) -> T + Sync,
        f: impl Fn(T, Option<T>) -> Node + Sync,
    ) -> Vec<Node> {
        let run = |task: &Task, out: &mut Vec<Node>| {
            for run in 0..task.runs {
                let start = task.input + run * task.cells;
                let even = task.cells & !1;
                out.extend(
                    (start..start + even)
                        .step_by(2)
                        .map(|i| f(read(i), Some(read(i + 1)))),
                );
                if even < task.cells {
                    out.push(f(read(start + even), None));
                }
            }
        };
        let mut out = Vec::with_capacity(self.output);
        self.tasks.iter().for_each(|task| run(task, &mut out));
        out
    }

    /// Replaces every pair by `pair` of it, and a cell without a partner by `alone` of it.
    pub(super) fn fold_in_place(
        &self,
        cells: &mut Vec<Node>,
        pair: impl Fn(Node, Node) -> Node + Sync,
        alone: impl Fn(Node) -> Node + Sync,
    ) {
        let fold = |task: &Task, cells: &mut [Node]| {
            // Writing never overtakes reading.
            let mut write = 0;
            for run in 0..task.runs {
                let start = run * task.cells;
                let even = task.cells & !1;
                for i in (start..start + even).step_by(2) {
                    cells[write] = pair(cells[i], cells[i + 1]);
                    write += 1;
                }
                if even < task.cells {
                    cells[write] = alone(cells[start + even]);
                    write += 1;
                }
            }
        };
        if let [task] = &self.tasks[..] {
            fold(task, cells);
        } else {
            let mut rest = &mut cells[..];
            let mut parts = Vec::with_capacity(self.tasks.len());
            for task in &self.tasks {
                let (part, after) = rest.split_at_mut(task.runs * task.cells);
                parts.push((task, part));
                rest = after;
            }
            parts
                .into_par_iter()
                .for_each(|(task, part)| fold(task, part));
            for task in &self.tasks {
                let n = task.runs * task.pairs();
                cells.copy_within(task.input..task.input + n, task.output);
            }
        }
        cells.truncate(self.output);
    }
}
