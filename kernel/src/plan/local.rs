//! Evaluation inside one distinct subtree, which needs no expanded document.

use std::borrow::Cow;

use crate::budget::Budget;
use crate::eval::{Context, Evaluated, Evaluator, name_text};
use crate::image::{Child, DOCUMENT, ElementId, PairId, Store};
use crate::intern::StrId;
use crate::xpath::bound::BoundName;
use crate::xpath::ir::{Axis, NameKind, NodeSet, Start, Step, Test};
use crate::xpath::text;

/// A node of a subtree. It does not know where it stands, since it may stand in many places.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Item {
    /// An element, or a document's row.
    Element(ElementId),
    Attribute(PairId),
    Text(StrId),
    Comment(StrId),
    Instruction(PairId),
}

impl From<Child> for Item {
    fn from(child: Child) -> Self {
        match child {
            Child::Element(id) => Item::Element(id),
            Child::Text(id) => Item::Text(id),
            Child::Comment(id) => Item::Comment(id),
            Child::Instruction(id) => Item::Instruction(id),
        }
    }
}

/// Evaluates what [`super::support`] allows: paths that lead down, from the context node.
#[derive(Debug, Clone, Copy)]
pub struct Local<'a> {
    pub store: &'a Store,
    pub names: &'a [BoundName],
    pub budget: &'a Budget,
}

/// Takes a node of a set; true ends the walk.
type Visit<'v> = &'v mut dyn FnMut(Item) -> Evaluated<bool>;

impl<'a> Local<'a> {
    /// Visits the nodes that steps lead to. True when a visit ended the walk.
    pub fn walk(&self, item: Item, steps: &'a [Step], visit: Visit<'_>) -> Evaluated<bool> {
        let Some((step, rest)) = steps.split_first() else { return visit(item) };
        if !step.positional {
            return self.axis(item, step, &mut |item| {
                Ok(self.holds(item, step)? && self.walk(item, rest, visit)?)
            });
        }
        let mut items = Vec::new();
        self.axis(item, step, &mut |item| {
            items.push(item);
            Ok(false)
        })?;
        for predicate in &step.predicates {
            let size = items.len();
            let mut kept = 0;
            for index in 0..size {
                let at = Context { node: items[index], position: index + 1, size };
                if self.bool(predicate, at)? {
                    items[kept] = items[index];
                    kept += 1;
                }
            }
            items.truncate(kept);
        }
        for item in items {
            if self.walk(item, rest, visit)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a node satisfies the predicates of a step, none of which is positional.
    pub fn holds(&self, item: Item, step: &'a Step) -> Evaluated<bool> {
        for predicate in &step.predicates {
            if !self.bool(predicate, Context::only(item))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Visits the nodes of a step's axis that pass its test.
    fn axis(&self, item: Item, step: &'a Step, visit: Visit<'_>) -> Evaluated<bool> {
        self.budget.spend(1)?;
        // A name that the partition never uses leads nowhere.
        if let Test::Name(name) = step.test
            && self.names[name].ids().is_empty()
        {
            return Ok(false);
        }
        let of_self = matches!(step.axis, Axis::SelfNode | Axis::DescendantOrSelf);
        if of_self && self.passes(item, &step.test) && visit(item)? {
            return Ok(true);
        }
        let Item::Element(id) = item else { return Ok(false) };
        match step.axis {
            Axis::Attribute => {
                let attributes = self.store.attributes(id);
                self.budget.spend(attributes.len())?;
                for &pair in attributes {
                    let passes = match &step.test {
                        Test::Node | Test::Any => true,
                        Test::Name(name) | Test::AnyIn(name) => {
                            self.names[*name].matches(self.store.pair(pair).0)
                        }
                        _ => false,
                    };
                    if passes && visit(Item::Attribute(pair))? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Axis::Child => {
                for child in self.store.children(id) {
                    self.budget.spend(1)?;
                    let item = Item::from(child);
                    if self.passes(item, &step.test) && visit(item)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Axis::Descendant | Axis::DescendantOrSelf => self.descend(id, &step.test, visit),
            _ => Ok(false),
        }
    }

    fn descend(&self, id: ElementId, test: &Test, visit: Visit<'_>) -> Evaluated<bool> {
        for child in self.store.children(id) {
            self.budget.spend(1)?;
            let item = Item::from(child);
            if self.passes(item, test) && visit(item)? {
                return Ok(true);
            }
            if let Child::Element(child) = child
                && self.descend(child, test, visit)?
            {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Whether a node that is no attribute passes a test, or any node passes `node()`.
    pub fn passes(&self, item: Item, test: &Test) -> bool {
        let name = |id: ElementId| self.store.elements()[id as usize].name;
        match (test, item) {
            (Test::Node, _) | (Test::Text, Item::Text(_)) | (Test::Comment, Item::Comment(_)) => {
                true
            }
            (Test::Instruction(target), Item::Instruction(pair)) => {
                let local = self.store.names()[self.store.pair(pair).0 as usize].local;
                target.as_ref().is_none_or(|target| target == self.store.strings().get(local))
            }
            (Test::Any, Item::Element(id)) => name(id) != DOCUMENT,
            (Test::Name(wanted) | Test::AnyIn(wanted), Item::Element(id)) => {
                self.names[*wanted].matches(name(id))
            }
            _ => false,
        }
    }

    /// The string-value of a node, borrowed from the store where it is one text.
    pub fn value(&self, item: Item) -> Evaluated<Cow<'a, str>> {
        let strings = self.store.strings();
        let value = match item {
            Item::Text(id) | Item::Comment(id) => strings.get(id),
            Item::Attribute(pair) | Item::Instruction(pair) => strings.get(self.store.pair(pair).1),
            Item::Element(id) => {
                let mut joined = Cow::Borrowed("");
                self.descend(id, &Test::Text, &mut |item| {
                    if let Item::Text(id) = item {
                        let more = strings.get(id);
                        self.budget.read(more)?;
                        joined = text::join(std::mem::take(&mut joined), Cow::Borrowed(more));
                    }
                    Ok(false)
                })?;
                return Ok(joined);
            }
        };
        self.budget.read(value)?;
        Ok(Cow::Borrowed(value))
    }

    /// Visits the nodes of a set. A union's are visited once for each side that has them.
    pub fn visit_set(&self, set: &'a NodeSet, item: Item, visit: Visit<'_>) -> Evaluated<bool> {
        match set {
            NodeSet::Path(Start::Set(set), steps) => {
                self.visit_set(set, item, &mut |item| self.walk(item, steps, visit))
            }
            NodeSet::Path(_, steps) => self.walk(item, steps, visit),
            NodeSet::Union(a, b) => {
                Ok(self.visit_set(a, item, visit)? || self.visit_set(b, item, visit)?)
            }
            NodeSet::Filter(set, predicate) => self.visit_set(set, item, &mut |item| {
                Ok(self.bool(predicate, Context::only(item))? && visit(item)?)
            }),
        }
    }
}

impl<'a> Evaluator<'a> for Local<'a> {
    type Node = Item;

    fn budget(&self) -> &Budget {
        self.budget
    }

    fn exists(&self, set: &'a NodeSet, at: Context<Item>) -> Evaluated<bool> {
        self.visit_set(set, at.node, &mut |_| Ok(true))
    }

    fn any(
        &self,
        set: &'a NodeSet,
        at: Context<Item>,
        test: &dyn Fn(&str) -> bool,
    ) -> Evaluated<bool> {
        self.visit_set(set, at.node, &mut |item| Ok(test(&self.value(item)?)))
    }

    fn count(&self, set: &'a NodeSet, at: Context<Item>) -> Evaluated<usize> {
        let mut count = 0;
        self.visit_set(set, at.node, &mut |_| {
            count += 1;
            Ok(false)
        })?;
        Ok(count)
    }

    fn values(&self, set: &'a NodeSet, at: Context<Item>) -> Evaluated<Vec<Cow<'a, str>>> {
        let mut values = Vec::new();
        self.visit_set(set, at.node, &mut |item| {
            values.push(self.value(item)?);
            Ok(false)
        })?;
        Ok(values)
    }

    fn first(&self, set: &'a NodeSet, at: Context<Item>) -> Evaluated<Cow<'a, str>> {
        let mut first = Cow::Borrowed("");
        self.visit_set(set, at.node, &mut |item| {
            first = self.value(item)?;
            Ok(true)
        })?;
        Ok(first)
    }

    fn name(&self, kind: NameKind, set: &'a NodeSet, at: Context<Item>) -> Evaluated<Cow<'a, str>> {
        let mut name = Cow::Borrowed("");
        self.visit_set(set, at.node, &mut |item| {
            name = match item {
                Item::Element(id) => match self.store.elements()[id as usize].name {
                    DOCUMENT => Cow::Borrowed(""),
                    id => name_text(self.store, kind, id),
                },
                Item::Attribute(pair) | Item::Instruction(pair) => {
                    name_text(self.store, kind, self.store.pair(pair).0)
                }
                Item::Text(_) | Item::Comment(_) => Cow::Borrowed(""),
            };
            Ok(true)
        })?;
        Ok(name)
    }

    /// Never asked: `lang()` looks upwards, so it is not supported here.
    fn is_language(&self, _: Item, _: &str) -> Evaluated<bool> {
        Ok(false)
    }
}
