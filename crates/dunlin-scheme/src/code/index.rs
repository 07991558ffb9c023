//! The code that a machine has loaded, by hash and by place.

use std::collections::HashMap;
use std::sync::Arc;

use super::unit::{Hash, Unit};
use super::{Instruction, Op};
use crate::datum::Pos;
use crate::error::Place;
use crate::read::Sources;

/// A loaded unit.
struct Loaded {
    base: u32,
    len: u32,
    hash: Hash,
    positions: Vec<(u32, Pos)>,
    procedures: Vec<(u32, Arc<str>)>,
    /// Where procedures begin, ascending, and how many variables their closures have.
    closures: Vec<(u32, u16)>,
    /// Where loops begin, and how many registers hold values there.
    loops: Vec<(u32, u16)>,
    source_name: Arc<str>,
    sources: Sources,
}

/// All code of a machine. Places in it are counted through all units.
#[derive(Clone, Default)]
pub(crate) struct Index {
    units: Vec<Arc<Loaded>>,
    by_hash: HashMap<Hash, usize>,
}

impl Index {
    /// Adds a unit whose code begins at `base`.
    pub(crate) fn add(&mut self, base: usize, hash: Hash, unit: Unit) {
        let mut closures = vec![(0, 0)];
        let mut loops = Vec::new();
        for (at, instruction) in unit.code.iter().enumerate() {
            let target = (at as i64 + 1 + instruction.c()) as u32;
            match instruction.op() {
                Op::Closure | Op::ClosureOpen => closures.push((target, instruction.b() as u16)),
                Op::LoopHead => loops.push((at as u32 + 1, instruction.a() as u16)),
                _ => {}
            }
        }
        closures.sort_unstable();
        loops.sort_unstable();
        self.by_hash.entry(hash).or_insert(self.units.len());
        self.units.push(Arc::new(Loaded {
            base: base as u32,
            len: unit.code.len() as u32,
            hash,
            positions: unit.positions,
            procedures: unit.procedures,
            closures,
            loops,
            source_name: unit.source_name,
            sources: unit.sources,
        }));
    }

    fn unit_of(&self, pc: usize) -> Option<(&Loaded, u32)> {
        let at = self.units.partition_point(|unit| unit.base as usize <= pc);
        let unit = self.units.get(at.checked_sub(1)?)?;
        let offset = (pc - unit.base as usize) as u32;
        if offset < unit.len { Some((unit, offset)) } else { None }
    }

    /// The unit of a place, and the place within it.
    pub(crate) fn locate(&self, pc: usize) -> Option<(Hash, u32)> {
        self.unit_of(pc).map(|(unit, offset)| (unit.hash, offset))
    }

    /// Where the code of a hash begins, and how long it is.
    pub(crate) fn find(&self, hash: &Hash) -> Option<(usize, usize)> {
        let unit = &self.units[*self.by_hash.get(hash)?];
        Some((unit.base as usize, unit.len as usize))
    }

    /// The number of variables of closures whose code begins at `pc`.
    pub(crate) fn closure(&self, pc: usize) -> Option<usize> {
        let (unit, offset) = self.unit_of(pc)?;
        let at = unit.closures.binary_search_by_key(&offset, |(start, _)| *start).ok()?;
        Some(usize::from(unit.closures[at].1))
    }

    /// Where the procedure begins that a place belongs to.
    pub(crate) fn procedure(&self, pc: usize) -> Option<usize> {
        let (unit, offset) = self.unit_of(pc)?;
        let at = unit.closures.partition_point(|(start, _)| *start <= offset);
        Some(unit.base as usize + unit.closures[at.checked_sub(1)?].0 as usize)
    }

    /// Whether a frame with so many registers can go on at `pc` when a value is put after them.
    pub(crate) fn is_return_point(&self, text: &[Instruction], pc: usize, registers: usize) -> bool {
        let Some((unit, offset)) = self.unit_of(pc) else { return false };
        let same_loop = |start: &(u32, u16)| start.0 == offset && usize::from(start.1) == registers;
        if unit.loops.iter().any(same_loop) {
            return true;
        }
        let Some(before) = offset.checked_sub(1).and_then(|_| text.get(pc - 1)) else { return false };
        match before.op() {
            Op::Entry => before.a() + before.b() + 1 == registers,
            Op::Enter => {
                let clause = (pc >= 2 && offset >= 2).then(|| text[pc - 2]);
                clause.is_some_and(|clause| clause.op() == Op::EntryOr && clause.a() + clause.b() + 1 == registers)
            }
            Op::CellWrite => before.index() == registers,
            op => op.can_fail() && before.a() == registers,
        }
    }

    /// The procedure and the position of an instruction.
    pub(crate) fn place(&self, pc: usize) -> Option<Place> {
        let (unit, at) = self.unit_of(pc)?;
        let before = unit.procedures.partition_point(|(start, _)| *start <= at);
        let (start, procedure) = unit.procedures.get(before.checked_sub(1)?)?;
        let position = unit.positions.partition_point(|(place, _)| *place <= at);
        let (place, pos) = unit.positions.get(position.checked_sub(1)?)?;
        if place < start {
            return None;
        }
        let source_name = unit.sources.name(*pos).unwrap_or(&unit.source_name).clone();
        Some(Place { procedure: procedure.clone(), source_name, pos: pos.plain() })
    }
}
