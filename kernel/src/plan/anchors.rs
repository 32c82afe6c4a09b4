//! Where to look: the distinct elements at which the rest of a `//` path can hold, from postings.

use crate::budget::Budget;
use crate::eval::Evaluated;
use crate::image::{ElementId, Store};
use crate::xpath::bound::BoundName;
use crate::xpath::ir::{Axis, BoolExpr, Cmp, NodeSet, NumExpr, Start, Step, StrExpr, Test};
use crate::xpath::{number, text};

use super::local::{Item, Local};

/// How a path is split: anchors come from postings, the steps from `rest` on are walked from each.
#[derive(Debug, Clone, Copy)]
pub enum Split<'a> {
    /// `//x[...]`: the elements themselves, of which `step` must hold.
    Elements(&'a Step, &'a [Step]),
    /// `//x[position]`: the parents of such elements; the step is walked too, to count positions.
    Parents(&'a Step, &'a [Step]),
    /// `//@x`: the elements that bear such an attribute.
    Bearers(usize, &'a [Step]),
}

impl<'a> Split<'a> {
    /// The steps to walk from each anchor.
    pub fn rest(self) -> &'a [Step] {
        match self {
            Split::Elements(_, rest) | Split::Parents(_, rest) | Split::Bearers(_, rest) => rest,
        }
    }
}

/// Splits an absolute path, if postings can help.
pub fn split(steps: &[Step]) -> Option<Split<'_>> {
    let (first, rest) = steps.split_first()?;
    if first.axis == Axis::Descendant && !first.positional && matches!(first.test, Test::Name(_)) {
        return Some(Split::Elements(first, rest));
    }
    let second = rest.first().filter(|_| first.is_slashes())?;
    match (second.axis, &second.test) {
        (Axis::Child, Test::Name(_)) => Some(Split::Parents(second, rest)),
        (Axis::Attribute, Test::Name(name)) => Some(Split::Bearers(*name, rest)),
        _ => None,
    }
}

/// A condition on a value that absence never satisfies.
#[derive(Debug, Clone, Copy)]
pub enum ValueTest<'a> {
    Equals(&'a str),
    /// Whatever the value is.
    Present,
    StartsWith(&'a str),
    Contains(&'a str),
    Differs(&'a str),
    Number(Cmp, f64),
}

impl ValueTest<'_> {
    /// Whether a value meets the condition.
    pub fn holds(&self, value: &str) -> bool {
        match self {
            ValueTest::Equals(wanted) => value == *wanted,
            ValueTest::Differs(wanted) => value != *wanted,
            ValueTest::Present => true,
            ValueTest::StartsWith(wanted) => value.starts_with(wanted),
            ValueTest::Contains(wanted) => text::contains(value, wanted),
            ValueTest::Number(cmp, wanted) => cmp.numbers(number::parse(value), *wanted),
        }
    }
}

/// The number of an expression that has no context.
pub fn constant(expr: &NumExpr) -> Option<f64> {
    match expr {
        NumExpr::Const(value) => Some(*value),
        NumExpr::Neg(a) => constant(a).map(|value| -value),
        NumExpr::Arith(arith, a, b) => Some(arith.apply(constant(a)?, constant(b)?)),
        NumExpr::Text(a) => match &**a {
            StrExpr::Const(text) => Some(number::parse(text)),
            _ => None,
        },
        _ => None,
    }
}

/// The set that a predicate tests, and the test, where an empty set makes the predicate false.
fn value_test(predicate: &BoolExpr) -> Option<(&NodeSet, ValueTest<'_>)> {
    match predicate {
        BoolExpr::Exists(set) => Some((set, ValueTest::Present)),
        BoolExpr::SetText(false, set, StrExpr::Const(text)) => Some((set, ValueTest::Equals(text))),
        BoolExpr::SetText(true, set, StrExpr::Const(text)) => Some((set, ValueTest::Differs(text))),
        BoolExpr::SetNumber(cmp, set, n) => Some((set, ValueTest::Number(*cmp, constant(n)?))),
        BoolExpr::StartsWith(StrExpr::First(set), StrExpr::Const(text)) if !text.is_empty() => {
            Some((set, ValueTest::StartsWith(text)))
        }
        BoolExpr::Contains(StrExpr::First(set), StrExpr::Const(text)) if !text.is_empty() => {
            Some((set, ValueTest::Contains(text)))
        }
        _ => None,
    }
}

/// The parents of so few elements are counted, to know what looking at them costs.
const MAX_COUNTED: usize = 64;

/// Posting lists whose union holds every anchor that can satisfy a path.
struct Candidates<'a> {
    lists: Vec<&'a [ElementId]>,
    /// The elements on all lists.
    total: usize,
    /// How many parents these have, about, where the lists hold children of the anchors instead.
    parents: Option<usize>,
}

impl<'a> Candidates<'a> {
    fn new(lists: Vec<&'a [ElementId]>) -> Self {
        let total = lists.iter().map(|list| list.len()).sum();
        Candidates { total, lists, parents: None }
    }

    fn children(lists: Vec<&'a [ElementId]>, store: &Store) -> Self {
        let mut found = Candidates::new(lists);
        let mut parents = found.total;
        // What is in few places only as itself may be so in many elements.
        if found.total <= MAX_COUNTED {
            let all = found.lists.iter().copied().flatten();
            parents = all.map(|&id| store.parents(id).count()).sum();
        }
        found.parents = Some(parents);
        found
    }

    fn cost(&self) -> usize {
        self.total + self.parents.unwrap_or(0)
    }
}

/// Finds anchors of one expression in one store.
pub struct Finder<'a> {
    pub store: &'a Store,
    pub names: &'a [BoundName],
    pub budget: &'a Budget,
}

impl<'a> Finder<'a> {
    /// The elements that satisfy a step, ascending, without duplicates. Where `rest` and `goal` say
    /// what else they need, candidates without it may be missing.
    pub fn elements(
        &self,
        step: &'a Step,
        rest: &'a [Step],
        goal: ValueTest<'a>,
        local: &Local<'a>,
    ) -> Evaluated<Vec<ElementId>> {
        let candidates = self.collect(&self.best(step, rest, goal)?, local)?;
        self.satisfying(step, candidates, local)
    }

    /// The elements given that satisfy a step.
    pub fn satisfying(
        &self,
        step: &'a Step,
        mut elements: Vec<ElementId>,
        local: &Local<'a>,
    ) -> Evaluated<Vec<ElementId>> {
        let Test::Name(name) = step.test else { return Ok(Vec::new()) };
        let rows = self.store.elements();
        elements.retain(|&id| self.names[name].matches(rows[id as usize].name));
        if step.predicates.is_empty() {
            return Ok(elements);
        }
        let mut kept = Vec::with_capacity(elements.len());
        for id in elements {
            if local.holds(Item::Element(id), step)? {
                kept.push(id);
            }
        }
        Ok(kept)
    }

    /// The parents of elements, ascending, without duplicates.
    pub fn parents(&self, children: &[ElementId], local: &Local<'a>) -> Evaluated<Vec<ElementId>> {
        let mut found: Vec<ElementId> =
            children.iter().flat_map(|&child| self.store.parents(child)).collect();
        local.budget.spend(children.len() + found.len())?;
        found.sort_unstable();
        found.dedup();
        Ok(found)
    }

    /// The elements with such a child: where positions among siblings are to be counted.
    pub fn parents_named(&self, test: &Test, local: &Local<'a>) -> Evaluated<Vec<ElementId>> {
        self.collect(&Candidates::children(self.named(test)?, self.store), local)
    }

    /// The elements that bear an attribute which meets the goal.
    pub fn bearing(
        &self,
        name: usize,
        goal: ValueTest<'a>,
        local: &Local<'a>,
    ) -> Evaluated<Vec<ElementId>> {
        self.collect(&self.bearers(name, &goal)?, local)
    }

    /// A guess at how many elements [`Finder::elements`] must look at.
    pub fn cost(&self, step: &'a Step, rest: &'a [Step], goal: ValueTest<'a>) -> Evaluated<usize> {
        Ok(self.best(step, rest, goal)?.cost())
    }

    fn collect(&self, candidates: &Candidates<'a>, local: &Local<'a>) -> Evaluated<Vec<ElementId>> {
        local.budget.spend(candidates.total)?;
        let mut found = Vec::with_capacity(candidates.total);
        for &list in &candidates.lists {
            found.extend_from_slice(list);
        }
        if candidates.parents.is_some() {
            return self.parents(&found, local);
        }
        if candidates.lists.len() > 1 {
            found.sort_unstable();
            found.dedup();
        }
        Ok(found)
    }

    fn best(
        &self,
        step: &'a Step,
        rest: &'a [Step],
        goal: ValueTest<'a>,
    ) -> Evaluated<Candidates<'a>> {
        let mut best = Candidates::new(self.named(&step.test)?);
        for predicate in &step.predicates {
            self.narrow(predicate, &mut best)?;
        }
        if let [Step { axis: Axis::Attribute, test: Test::Name(name), .. }] = rest {
            keep_shorter(self.bearers(*name, &goal)?, &mut best);
        }
        Ok(best)
    }

    fn narrow(&self, predicate: &'a BoolExpr, best: &mut Candidates<'a>) -> Evaluated<()> {
        if let BoolExpr::And(a, b) = predicate {
            self.narrow(a, best)?;
            self.narrow(b, best)?;
        }
        let Some((NodeSet::Path(Start::Context, steps), test)) = value_test(predicate) else {
            return Ok(());
        };
        match steps.as_slice() {
            [Step { axis: Axis::Attribute, test: Test::Name(name), predicates, .. }]
                if predicates.is_empty() =>
            {
                keep_shorter(self.bearers(*name, &test)?, best);
            }
            [Step { axis: Axis::Child, test: child @ Test::Name(_), .. }, ..] => {
                let candidates = Candidates::children(self.named(child)?, self.store);
                self.budget.spend(candidates.parents.unwrap_or(0) / 4)?;
                keep_shorter(candidates, best);
            }
            _ => {}
        }
        Ok(())
    }

    fn named(&self, test: &Test) -> Evaluated<Vec<&'a [ElementId]>> {
        let Test::Name(name) = test else { return Ok(Vec::new()) };
        let ids = self.names[*name].ids();
        self.budget.spend(ids.len())?;
        Ok(ids.iter().map(|&id| self.store.elements_named(id)).collect())
    }

    fn bearers(&self, name: usize, test: &ValueTest<'_>) -> Evaluated<Candidates<'a>> {
        let mut lists = Vec::new();
        for &name in self.names[name].ids() {
            self.budget.spend(1)?;
            if let ValueTest::Equals(wanted) = test {
                let value = self.store.strings().find(wanted);
                let pair = value.and_then(|value| self.store.find_pair(name, value));
                lists.extend(pair.map(|pair| self.store.elements_bearing(pair)));
                continue;
            }
            // A partition may have a serial for every machine.
            for &pair in self.store.pairs_named(name) {
                let value = self.store.strings().get(self.store.pair(pair).1);
                self.budget.read(value)?;
                if test.holds(value) {
                    lists.push(self.store.elements_bearing(pair));
                }
            }
        }
        lists.retain(|list| !list.is_empty());
        Ok(Candidates::new(lists))
    }
}

fn keep_shorter<'a>(candidates: Candidates<'a>, best: &mut Candidates<'a>) {
    if candidates.cost() < best.cost() {
        *best = candidates;
    }
}
