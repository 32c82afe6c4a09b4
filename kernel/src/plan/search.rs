//! The distinct elements at which a `//` path holds.

use crate::eval::Evaluated;
use crate::image::{Child, ElementId};
use crate::xpath::ir::{Axis, Step, Test};

use super::anchors::{Finder, Split, ValueTest};
use super::local::{Item, Local};
use super::reach::Reached;
use super::texts::Texts;

/// Searches one store for one expression.
pub struct Search<'a, 'l> {
    pub local: &'l Local<'a>,
    pub texts: &'l Texts<'a>,
}

impl<'a> Search<'a, '_> {
    /// The anchors of a split path, whatever follows.
    pub fn anchors(&self, split: Split<'a>) -> Evaluated<Vec<ElementId>> {
        match split {
            // Without the rest, so that none is missing.
            Split::Elements(step, _) => {
                self.finder().elements(step, &[], ValueTest::Present, self.local)
            }
            Split::Parents(step, _) => self.finder().parents_named(&step.test, self.local),
            Split::Bearers(name, _) => self.finder().bearing(name, ValueTest::Present, self.local),
        }
    }

    /// The anchors from which the rest leads to a node that meets the goal.
    pub fn hits(&self, split: Split<'a>, goal: ValueTest<'a>) -> Evaluated<Vec<ElementId>> {
        match split {
            Split::Elements(step, rest) => self.matching(step, rest, goal),
            _ => self.leading(self.anchors(split)?, split.rest(), goal),
        }
    }

    /// A guess at how many elements [`Search::hits`] must look at.
    pub fn cost(&self, split: Split<'a>, goal: ValueTest<'a>) -> Evaluated<usize> {
        match split {
            Split::Elements(step, rest) => self.cost_of(step, rest, goal),
            // Both are short in practice, and a walk would visit as many.
            Split::Parents(..) | Split::Bearers(..) => Ok(0),
        }
    }

    /// Whether steps lead from a node to one that meets the goal.
    pub fn leads_to(&self, item: Item, steps: &'a [Step], goal: ValueTest<'a>) -> Evaluated<bool> {
        self.local.walk(item, steps, &mut |item| match goal {
            ValueTest::Present => Ok(true),
            _ => self.texts.passes(item, &goal),
        })
    }

    /// The elements that satisfy a step and from which the rest leads to the goal. Distinct leaves
    /// are few, so the search begins at the far end where that is shorter.
    fn matching(
        &self,
        step: &'a Step,
        rest: &'a [Step],
        goal: ValueTest<'a>,
    ) -> Evaluated<Vec<ElementId>> {
        let finder = self.finder();
        let deeper = rest.iter().position(|step| is_plain(step, Axis::Descendant));
        if let Some(index) = deeper {
            let inner = self.matching(&rest[index], &rest[index + 1..], goal)?;
            let reached = Reached::from(self.local.store, &inner, self.local.budget)?;
            let elements = finder.elements(step, &[], goal, self.local)?;
            return self.above(elements, &rest[..index], &reached);
        }
        if let Some((next, after)) = rest.split_first()
            && is_plain(next, Axis::Child)
            && self.cost_of(next, after, goal)? < finder.cost(step, rest, goal)?
        {
            let inner = self.matching(next, after, goal)?;
            return finder.satisfying(step, finder.parents(&inner, self.local)?, self.local);
        }
        let elements = finder.elements(step, rest, goal, self.local)?;
        self.leading(elements, rest, goal)
    }

    fn cost_of(&self, step: &'a Step, rest: &'a [Step], goal: ValueTest<'a>) -> Evaluated<usize> {
        let own = self.finder().cost(step, rest, goal)?;
        match rest.split_first() {
            Some((next, after)) if is_plain(next, Axis::Child) => {
                Ok(own.min(self.cost_of(next, after, goal)?))
            }
            _ => Ok(own),
        }
    }

    /// The elements given from which the rest leads to the goal.
    fn leading(
        &self,
        elements: Vec<ElementId>,
        rest: &'a [Step],
        goal: ValueTest<'a>,
    ) -> Evaluated<Vec<ElementId>> {
        if rest.is_empty() && matches!(goal, ValueTest::Present) {
            return Ok(elements);
        }
        let mut kept = Vec::with_capacity(elements.len());
        for id in elements {
            if self.leads_to(Item::Element(id), rest, goal)? {
                kept.push(id);
            }
        }
        Ok(kept)
    }

    /// The elements given from which the rest leads to an element that contains a reached one.
    fn above(
        &self,
        elements: Vec<ElementId>,
        rest: &'a [Step],
        reached: &Reached,
    ) -> Evaluated<Vec<ElementId>> {
        let contains = |id: ElementId| {
            for child in self.local.store.children(id) {
                self.local.budget.spend(1)?;
                if matches!(child, Child::Element(child) if reached.contains(child)) {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        let mut kept = Vec::with_capacity(elements.len());
        for id in elements {
            // An element can only contain what has marked it.
            let visit = &mut |item| match item {
                Item::Element(id) => Ok(reached.contains(id) && contains(id)?),
                _ => Ok(false),
            };
            if reached.contains(id) && self.local.walk(Item::Element(id), rest, visit)? {
                kept.push(id);
            }
        }
        Ok(kept)
    }

    fn finder(&self) -> Finder<'a> {
        let Local { store, names, budget } = *self.local;
        Finder { store, names, budget }
    }
}

/// Whether a step takes named elements along an axis without counting positions.
fn is_plain(step: &Step, axis: Axis) -> bool {
    step.axis == axis && !step.positional && matches!(step.test, Test::Name(_))
}
