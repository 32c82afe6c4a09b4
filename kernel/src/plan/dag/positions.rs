//! Functions of the nodes that predicates with positions leave.

use super::numbered::asks_for_size;
use super::program::{Chosen, Func, FuncId, Kind};
use super::values::{Op, Value};
use super::{Dag, Place};
use crate::eval::{Context, Evaluated, Evaluator};
use crate::plan::local::Item;
use crate::xpath::ir::{self, Axis, BoolExpr, Cmp, NumExpr, Step};
use crate::xpath::parts::Part;

impl<'a> Dag<'a, '_> {
    pub(super) fn listed(
        &self,
        func: &Func<'a>,
        step: &'a Step,
        then: FuncId,
        at: Place,
    ) -> Evaluated<Value> {
        let Item::Element(element) = at.item else { return Ok(0) };
        let mut places: Vec<Place> = Vec::new();
        self.local.budget.spend(self.layers.width(element))?;
        if step.axis == Axis::Attribute {
            let env = self.of_attributes(func.below, element, at.env)?;
            places.extend(self.layers.attributes(element).map(|item| Place { item, env }));
        } else {
            let inside = self.inside(func.below, element, at.env)?;
            let items = self.layers.children(element).enumerate();
            places.extend(items.map(|(index, item)| Place { item, env: inside.env(index) }));
        }
        places.retain(|place| self.passes(step, place.item));
        self.keep(&step.predicates, &mut places)?;
        self.joined(func.op, then, places)
    }

    /// Keeps what satisfies predicates; positions are the order given.
    fn keep(&self, predicates: &'a [BoolExpr], places: &mut Vec<Place>) -> Evaluated<()> {
        for predicate in predicates {
            let size = places.len();
            let mut kept = 0;
            for index in 0..size {
                let at = Context { node: places[index], position: index + 1, size };
                if self.bool(predicate, at)? {
                    places[kept] = places[index];
                    kept += 1;
                }
            }
            places.truncate(kept);
        }
        Ok(())
    }

    fn joined(&self, op: Op, then: FuncId, places: Vec<Place>) -> Evaluated<Value> {
        let mut so_far = 0;
        for place in places {
            so_far = self.join(op, so_far, self.ask(then, place)?)?;
            if op.is_final(so_far) {
                break;
            }
        }
        Ok(so_far)
    }

    pub(super) fn selected(&self, func: &Func<'a>, at: Place) -> Evaluated<Value> {
        let Kind::Selected(chosen, predicate, then) = func.kind else { return Ok(0) };
        let mut places = Vec::new();
        let (mut wanted, is_one) = match (position(predicate), reach(predicate)) {
            (Some(Some(position)), _) => (position - 1..position, true),
            (_, Reach::Last(before)) => {
                let Some(index) = self.amount(&chosen, at)?.checked_sub(before) else {
                    return Ok(0);
                };
                (index..index + 1, true)
            }
            (_, Reach::First(most)) => (0..most, false),
            (_, Reach::All) => (0..usize::MAX, false),
        };
        self.collect(func, &chosen, at, &mut wanted, &mut places)?;
        if !is_one {
            self.keep(std::slice::from_ref(predicate), &mut places)?;
        }
        self.joined(func.op, then, places)
    }

    fn amount(&self, chosen: &Chosen, at: Place) -> Evaluated<usize> {
        let amount = self.ask(chosen.amount, at)?;
        Ok(self.values.borrow().number(amount) as usize)
    }

    /// Finds the members whose places in document order are wanted, and counts the places down.
    // Depth is bounded by the parser, and where a file is opened: so recursion is.
    fn collect(
        &self,
        func: &Func<'a>,
        chosen: &Chosen,
        at: Place,
        wanted: &mut std::ops::Range<usize>,
        found: &mut Vec<Place>,
    ) -> Evaluated<()> {
        let amount = self.amount(chosen, at)?;
        if wanted.start >= amount || wanted.end == 0 {
            wanted.start = wanted.start.saturating_sub(amount);
            wanted.end = wanted.end.saturating_sub(amount);
            return Ok(());
        }
        self.try_member(chosen, at, wanted, found)?;
        let Item::Element(element) = at.item else { return Ok(()) };
        self.local.budget.spend(self.layers.width(element))?;
        let env = self.of_attributes(func.below, element, at.env)?;
        for item in self.layers.attributes(element) {
            self.try_member(chosen, Place { item, env }, wanted, found)?;
        }
        let inside = self.inside(func.below, element, at.env)?;
        for (index, item) in self.layers.children(element).enumerate() {
            let place = Place { item, env: inside.env(index) };
            self.collect(func, chosen, place, wanted, found)?;
        }
        Ok(())
    }

    fn try_member(
        &self,
        chosen: &Chosen,
        at: Place,
        wanted: &mut std::ops::Range<usize>,
        found: &mut Vec<Place>,
    ) -> Evaluated<()> {
        if wanted.end == 0 || self.ask(chosen.member, at)? == 0 {
            return Ok(());
        }
        if wanted.start == 0 {
            found.push(at);
        }
        wanted.start = wanted.start.saturating_sub(1);
        wanted.end -= 1;
        Ok(())
    }
}

/// The only position that a predicate takes: a number, or the last one.
pub(super) fn position(predicate: &BoolExpr) -> Option<Option<usize>> {
    match predicate {
        BoolExpr::Numbers(Cmp::Eq, NumExpr::Position, NumExpr::Const(wanted))
            if wanted.fract() == 0.0 && (1.0..1e9).contains(wanted) =>
        {
            Some(Some(*wanted as usize))
        }
        BoolExpr::Numbers(Cmp::Eq, NumExpr::Position, NumExpr::Last) => Some(None),
        _ => None,
    }
}

/// Which nodes a predicate can leave, by their places in its context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    All,
    /// Some of the first.
    First(usize),
    /// The one before so many of the last, less one.
    Last(usize),
}

pub(super) fn reach(predicate: &BoolExpr) -> Reach {
    use NumExpr::{Arith, Const, Last, Position};
    match predicate {
        BoolExpr::Numbers(Cmp::Eq, Position, Last) | BoolExpr::Numbers(Cmp::Eq, Last, Position) => {
            Reach::Last(1)
        }
        BoolExpr::Numbers(Cmp::Eq, Position, Arith(ir::Arith::Sub, last, before)) => {
            match (&**last, &**before) {
                (Last, &Const(before)) if before.fract() == 0.0 && (0.0..1e6).contains(&before) => {
                    Reach::Last(before as usize + 1)
                }
                _ => Reach::All,
            }
        }
        BoolExpr::Numbers(cmp, Position, Const(limit)) => first(*cmp, *limit),
        BoolExpr::Numbers(cmp, Const(limit), Position) => first(cmp.flipped(), *limit),
        BoolExpr::And(a, b) if !asks_for_size(Part::Bool(predicate)) => {
            match (reach(a), reach(b)) {
                (Reach::First(a), Reach::First(b)) => Reach::First(a.min(b)),
                (Reach::First(most), _) | (_, Reach::First(most)) => Reach::First(most),
                _ => Reach::All,
            }
        }
        _ => Reach::All,
    }
}

/// The first positions that compare so with a number, as many as there are at least.
fn first(cmp: Cmp, limit: f64) -> Reach {
    match cmp {
        Cmp::Eq | Cmp::Lt | Cmp::Le if (0.0..1e6).contains(&limit) => {
            Reach::First((limit as usize).max(1))
        }
        _ => Reach::All,
    }
}
