//! Steps with positions along any axis: what they lead to is listed, and of a list with the same outcomes
//! the same nodes are left.

use super::lists::Entry;
use super::positions::{self, Reach};
use super::program::{Func, FuncId};
use super::values::{Op, Value};
use super::{Dag, Place};
use crate::eval::{Context, Evaluated, Evaluator};
use crate::xpath::ir::{BoolExpr, NumExpr, Step};
use crate::xpath::parts::Part;

/// Positions up to here are counted on short lists, which hardly differ from node to node.
const MAX_SHORT: usize = 16;
/// The predicates that are kept as bits.
const MAX_PREDICATES: usize = 32;

/// Predicates of which one asks for its position.
#[derive(Debug, Clone, Copy)]
pub struct Numbering<'a> {
    /// The step that they belong to; none for those of a set.
    pub step: Option<&'a Step>,
    predicates: &'a [BoolExpr],
    /// The first that asks for its position.
    first: usize,
    /// Which nodes it can leave.
    reach: Reach,
    is_reverse: bool,
    /// Whether one of them asks for its position and for something else.
    by_node: bool,
    /// What is asked of the nodes that are left.
    pub then: FuncId,
    /// The function that gives the list.
    pub list: FuncId,
}

impl<'a> Numbering<'a> {
    /// None where there are too many predicates.
    pub fn new(
        step: Option<&'a Step>,
        predicates: &'a [BoolExpr],
        is_reverse: bool,
        then: FuncId,
    ) -> Option<Self> {
        let first = predicates.iter().position(BoolExpr::is_positional)?;
        let by_node = predicates[first..]
            .iter()
            .any(|predicate| predicate.is_positional() && !is_number(Part::Bool(predicate)));
        let reach = match positions::reach(&predicates[first]) {
            Reach::First(most) | Reach::Last(most) if most > MAX_SHORT || by_node => Reach::All,
            reach => reach,
        };
        (predicates.len() <= MAX_PREDICATES).then_some(Numbering {
            step,
            predicates,
            first,
            reach,
            is_reverse,
            by_node,
            then,
            list: 0,
        })
    }

    /// Whether a set's members are better listed than looked for: all of them matter, or few do.
    pub fn is_short(predicate: &BoolExpr) -> bool {
        match positions::reach(predicate) {
            Reach::First(most) | Reach::Last(most) => most <= MAX_SHORT,
            Reach::All => is_number(Part::Bool(predicate)),
        }
    }

    /// How lists are joined.
    pub fn op(&self) -> Op {
        match (self.reach, self.is_reverse) {
            (Reach::All, _) => Op::List,
            (Reach::First(most), false) | (Reach::Last(most), true) => Op::Front(most as u8),
            (Reach::First(most), true) | (Reach::Last(most), false) => Op::Back(most as u8),
        }
    }
}

/// Whether an operator depends on nothing but its position and the size of its context.
fn is_number(part: Part<'_>) -> bool {
    match part {
        Part::Set(..) | Part::Bool(BoolExpr::Lang(_)) => false,
        _ => part.all(is_number),
    }
}

/// Whether an operator asks for the size of its context.
pub(super) fn asks_for_size(part: Part<'_>) -> bool {
    matches!(part, Part::Num(NumExpr::Last)) || !part.all(|part| !asks_for_size(part))
}

impl<'a> Dag<'a, '_> {
    /// The list of one node, if it passes what comes before positions.
    pub(super) fn entry(&self, func: &Func<'a>, number: usize, at: Place) -> Evaluated<Value> {
        let numbering = self.program.numberings[number];
        if numbering.step.is_some_and(|step| !self.passes(step, at.item)) {
            return Ok(0);
        }
        let (before, rest) = numbering.predicates.split_at(numbering.first);
        if !self.holds(before, at)? {
            return Ok(0);
        }
        let mut bits = 0;
        for (index, predicate) in rest.iter().enumerate() {
            let is_known = !numbering.by_node && !predicate.is_positional();
            if is_known && self.bool(predicate, Context::only(at))? {
                bits |= 1 << index;
            }
        }
        let entry = match numbering.by_node {
            true => {
                self.see(func.mask);
                Entry::Node(Place { env: at.env & func.mask, ..at })
            }
            false => Entry::Known(bits, self.ask(numbering.then, at)?),
        };
        Ok(self.values.borrow_mut().lists.of(func.op, entry))
    }

    /// What the nodes that are left of a list give.
    pub(super) fn numbered(&self, func: &Func<'a>, number: usize, at: Place) -> Evaluated<Value> {
        let numbering = self.program.numberings[number];
        let list = self.ask(numbering.list, at)?;
        if list == 0 {
            return Ok(0);
        }
        if let Some(&known) = self.numbered.borrow().get(&(number, list)) {
            return Ok(known);
        }
        let mut entries = self.values.borrow().lists.entries(list);
        self.local.budget.spend(entries.len())?;
        if numbering.is_reverse {
            entries.reverse();
        }
        for index in 0..numbering.predicates.len() - numbering.first {
            if let (0, Reach::Last(most)) = (index, numbering.reach) {
                // The list ends where the axis does.
                entries.truncate(usize::from(entries.len() == most));
                continue;
            }
            self.keep_numbered_entries(&numbering, index, at, &mut entries)?;
        }
        if numbering.is_reverse {
            entries.reverse();
        }
        let mut so_far = 0;
        for entry in entries {
            let value = match entry {
                Entry::Known(_, value) => value,
                Entry::Node(place) => self.ask(numbering.then, place)?,
            };
            so_far = self.join(func.op, so_far, value)?;
        }
        self.numbered.borrow_mut().insert((number, list), so_far);
        Ok(so_far)
    }

    fn keep_numbered_entries(
        &self,
        numbering: &Numbering<'a>,
        index: usize,
        at: Place,
        entries: &mut Vec<Entry>,
    ) -> Evaluated<()> {
        let predicate = &numbering.predicates[numbering.first + index];
        let is_positional = predicate.is_positional();
        let size = entries.len();
        let mut kept = 0;
        for from in 0..size {
            let node = match entries[from] {
                Entry::Node(place) => place,
                Entry::Known(..) => at,
            };
            let holds = match entries[from] {
                Entry::Known(bits, _) if !is_positional => bits >> index & 1 == 1,
                _ => self.bool(predicate, Context { node, position: from + 1, size })?,
            };
            if holds {
                entries[kept] = entries[from];
                kept += 1;
            }
        }
        entries.truncate(kept);
        Ok(())
    }
}
