//! What node-sets come to, by the outline.

use super::{Here, Simplifier};
use crate::eval::{Evaluated, name_text};
use crate::image::{Class, Classes, DOCUMENT};
use crate::xpath::ir::{Axis, BoolExpr, NameKind, NodeSet, Start, Step, Test};

/// A set, and what its nodes may be; none for a set that is empty in every document.
type Found = Option<(NodeSet, Classes)>;

impl Simplifier<'_> {
    pub(super) fn set(&self, set: &NodeSet, here: &Here) -> Evaluated<Found> {
        Ok(match set {
            NodeSet::Path(start, steps) => {
                let (start, mut classes) = match start {
                    Start::Root => (Start::Root, self.outline.only(DOCUMENT as usize)),
                    Start::Context => (Start::Context, here.classes.clone()),
                    Start::Set(inner) => {
                        let Some((inner, classes)) = self.set(inner, here)? else {
                            return Ok(None);
                        };
                        (Start::Set(Box::new(inner)), classes)
                    }
                };
                let mut simple = Vec::with_capacity(steps.len());
                let document = self.outline.only(DOCUMENT as usize);
                let mut is_from_document = false;
                for step in steps {
                    let Some((step, after)) = self.step(step, &classes)? else { return Ok(None) };
                    back_and_forth(&mut simple, step, is_from_document);
                    is_from_document = classes == document;
                    classes = after;
                }
                Some((NodeSet::Path(start, simple), classes))
            }
            NodeSet::Filter(inner, predicate) => {
                let Some((inner, mut classes)) = self.set(inner, here)? else { return Ok(None) };
                match self.predicate(predicate, &mut classes, false)? {
                    BoolExpr::Const(true) => Some((inner, classes)),
                    _ if classes.is_empty() => None,
                    predicate => {
                        Some((NodeSet::Filter(Box::new(inner), Box::new(predicate)), classes))
                    }
                }
            }
            NodeSet::Union(a, b) => match (self.set(a, here)?, self.set(b, here)?) {
                (Some((a, mut classes)), Some((b, more))) => {
                    classes.extend(&more);
                    Some((NodeSet::Union(Box::new(a), Box::new(b)), classes))
                }
                (found, None) | (None, found) => found,
            },
        })
    }

    fn step(&self, step: &Step, from: &Classes) -> Evaluated<Option<(Step, Classes)>> {
        let mut classes = self.along(step.axis, from)?;
        for class in classes.clone().iter() {
            if !self.passes(step, class) {
                classes.remove(class);
            }
        }
        // An element has one attribute of a name, and a node one parent.
        let is_only = match (step.axis, &step.test) {
            (Axis::SelfNode | Axis::Parent, _) => true,
            (axis, test) => axis == Axis::Attribute && matches!(test, Test::Name(_)),
        };
        let mut predicates = Vec::new();
        for predicate in &step.predicates {
            if classes.is_empty() {
                return Ok(None);
            }
            match self.predicate(predicate, &mut classes, is_only)? {
                BoolExpr::Const(true) => {}
                predicate => predicates.push(predicate),
            }
        }
        if classes.is_empty() {
            return Ok(None);
        }
        Ok(Some((Step::new(step.axis, step.test.clone(), predicates), classes)))
    }

    /// A predicate, which leaves the classes of which it may hold.
    fn predicate(
        &self,
        predicate: &BoolExpr,
        classes: &mut Classes,
        is_only: bool,
    ) -> Evaluated<BoolExpr> {
        let simple = self.bool(predicate, &Here { classes: classes.clone(), is_only })?;
        match simple {
            BoolExpr::Const(true) => return Ok(simple),
            BoolExpr::Const(false) => *classes = self.outline.none(),
            _ if classes.len() > 1 => {
                for class in classes.clone().iter() {
                    let Some(looks) = self.looks.get().checked_sub(1) else { break };
                    self.looks.set(looks);
                    let only = Here { classes: self.outline.only(class), is_only };
                    if self.bool(&simple, &only)? == BoolExpr::Const(false) {
                        classes.remove(class);
                    }
                }
            }
            _ => {}
        }
        Ok(simple)
    }

    fn along(&self, axis: Axis, from: &Classes) -> Evaluated<Classes> {
        let outline = self.outline;
        self.budget.spend(1 + self.store.names().len() / 4)?;
        let with_self = |mut classes: Classes| {
            classes.extend(from);
            classes
        };
        Ok(match axis {
            Axis::SelfNode => from.clone(),
            Axis::Child => outline.children(from),
            Axis::Attribute => outline.attributes(from),
            Axis::Parent => outline.parents(from),
            Axis::Descendant => outline.descendants(from),
            Axis::DescendantOrSelf => with_self(outline.descendants(from)),
            Axis::Ancestor => outline.ancestors(from),
            Axis::AncestorOrSelf => with_self(outline.ancestors(from)),
            Axis::FollowingSibling | Axis::PrecedingSibling => {
                let mut siblings = from.clone();
                for class in from.iter() {
                    if matches!(
                        outline.named(class),
                        Class::Attribute(_) | Class::Element(DOCUMENT)
                    ) {
                        siblings.remove(class);
                    }
                }
                outline.children(&outline.parents(&siblings))
            }
            Axis::Following | Axis::Preceding => outline.inside(),
        })
    }

    fn passes(&self, step: &Step, class: usize) -> bool {
        let class = self.outline.named(class);
        match (&step.test, class, step.axis) {
            (Test::Node, ..) => true,
            (Test::Any, Class::Attribute(_), Axis::Attribute) => true,
            (Test::Name(name) | Test::AnyIn(name), Class::Attribute(own), Axis::Attribute) => {
                self.names[*name].matches(own)
            }
            (Test::Any, Class::Element(name), _) => name != DOCUMENT,
            (Test::Name(name) | Test::AnyIn(name), Class::Element(own), _) => {
                own != DOCUMENT && self.names[*name].matches(own)
            }
            (Test::Text, Class::Text, _) | (Test::Comment, Class::Comment, _) => true,
            (Test::Instruction(_), Class::Instruction, _) => true,
            _ => false,
        }
    }

    /// Whether a path leads somewhere from whatever the context may be.
    pub(super) fn is_certain(&self, set: &NodeSet, here: &Here) -> bool {
        let (start, steps) = match set {
            NodeSet::Path(start, steps) => (start, steps),
            NodeSet::Union(a, b) => return self.is_certain(a, here) || self.is_certain(b, here),
            NodeSet::Filter(..) => return false,
        };
        let is_self = |step: &Step| {
            step.axis == Axis::SelfNode && step.test == Test::Node && step.predicates.is_empty()
        };
        match (start, steps.as_slice()) {
            (Start::Root | Start::Context, steps) if steps.iter().all(is_self) => true,
            (Start::Root, [step]) => begins_with_document(step),
            (Start::Context, [step]) => {
                let is_document = here.classes.contains(DOCUMENT as usize);
                *step == Step::all(Axis::Parent) && !is_document
            }
            _ => false,
        }
    }

    /// Whether a set has all nodes of some classes.
    pub(super) fn has_all(&self, set: &NodeSet, classes: &Classes) -> bool {
        let NodeSet::Path(Start::Root, steps) = set else { return false };
        let (step, is_attribute) = match steps.as_slice() {
            [step] if step.axis == Axis::Descendant => (step, false),
            [all, step] if all.is_slashes() && step.axis == Axis::Attribute => (step, true),
            _ => return false,
        };
        let is_one = |class: usize| match self.outline.named(class) {
            Class::Attribute(_) => is_attribute && self.passes(step, class),
            // Targets of instructions are not told apart.
            Class::Element(DOCUMENT) | Class::Instruction => false,
            _ => !is_attribute && self.passes(step, class),
        };
        step.predicates.is_empty() && classes.iter().all(is_one)
    }

    /// Whether no node of some classes has a text for its value.
    pub(super) fn is_nowhere(&self, text: &str, classes: &Classes) -> Evaluated<bool> {
        self.budget.read(text)?;
        let text = self.store.strings().find(text);
        for class in classes.iter() {
            self.budget.spend(1)?;
            let is_nowhere = match (self.outline.named(class), text) {
                (Class::Attribute(name), Some(text)) => self.store.find_pair(name, text).is_none(),
                (Class::Attribute(_) | Class::Text | Class::Comment, None) => true,
                _ => false,
            };
            if !is_nowhere {
                return Ok(false);
            }
        }
        Ok(true)
    }

    pub(super) fn name_of(&self, kind: NameKind, class: usize) -> String {
        match self.outline.named(class) {
            Class::Element(DOCUMENT) | Class::Text | Class::Comment => String::new(),
            Class::Element(name) | Class::Attribute(name) => {
                name_text(self.store, kind, name).into_owned()
            }
            // Targets are not told apart: this is the name of none.
            Class::Instruction => String::from("?"),
        }
    }
}

/// Whether the first node that a step leads to from the document is the document, which has a root.
fn begins_with_document(step: &Step) -> bool {
    let has_root = |predicate: &BoolExpr| match predicate {
        BoolExpr::Exists(NodeSet::Path(Start::Context, steps)) => {
            let any = Step::new(Axis::Child, Test::Any, Vec::new());
            *steps == [Step::all(Axis::Child)] || *steps == [any]
        }
        _ => false,
    };
    step.axis == Axis::DescendantOrSelf
        && step.test == Test::Node
        && step.predicates.iter().all(has_root)
}

/// Whether the first node that a step leads to from the document is the root element, whose string-value
/// is that of the document.
fn begins_with_root(step: &Step) -> bool {
    matches!(step.axis, Axis::Child | Axis::Descendant | Axis::DescendantOrSelf)
        && step.test == Test::Any
        && step.predicates.is_empty()
}

/// A set with the string-value of the first node of a set, where that is known.
pub(super) fn first_of(set: NodeSet) -> NodeSet {
    match &set {
        NodeSet::Path(Start::Root, steps) if matches!(steps.as_slice(), [step] if begins_with_document(step) || begins_with_root(step)) => {
            NodeSet::Path(Start::Root, Vec::new())
        }
        _ => set,
    }
}

/// Adds a step to others that end with `//`, where one step takes the nodes that both lead to:
/// `//self::x` and `//ancestor-or-self::x` are `//x`. Gives the step back elsewhere.
fn from_everywhere(steps: &mut Vec<Step>, step: Step, is_from_document: bool) -> Option<Step> {
    let is_after = steps.last().is_some_and(Step::is_slashes) && !step.positional;
    let (with_self, needs_child) = match step.axis {
        Axis::SelfNode | Axis::DescendantOrSelf => (true, false),
        Axis::AncestorOrSelf if is_from_document => (true, false),
        Axis::Ancestor if is_from_document => (true, true),
        Axis::Child | Axis::Descendant => (false, false),
        _ => return Some(step),
    };
    if !is_after {
        return Some(step);
    }
    // Only `node()` is true of the document.
    let is_below = !with_self || is_from_document && step.test != Test::Node;
    let axis = if is_below { Axis::Descendant } else { Axis::DescendantOrSelf };
    let mut predicates = step.predicates;
    if needs_child {
        let children = NodeSet::Path(Start::Context, vec![Step::all(Axis::Child)]);
        predicates.insert(0, BoolExpr::Exists(children));
    }
    steps.pop();
    steps.push(Step::new(axis, step.test, predicates));
    None
}

/// Adds a step to others. What leads down and up again asks whether there is something below:
/// `x/y/..` is `x[y]`. `is_from_document` says whether the last of the others starts there.
fn back_and_forth(steps: &mut Vec<Step>, step: Step, is_from_document: bool) {
    let Some(step) = from_everywhere(steps, step, is_from_document) else { return };
    let is_up = step.axis == Axis::Parent && !step.positional;
    let Some(down) = steps.pop_if(|last| {
        is_up
            && !last.positional
            && match last.axis {
                Axis::Child | Axis::Attribute | Axis::Descendant => true,
                _ => last.is_slashes() && is_from_document,
            }
    }) else {
        return steps.push(step);
    };
    let (axis, below) = match down.axis {
        Axis::Child | Axis::Attribute => (Axis::SelfNode, down),
        Axis::Descendant => {
            (Axis::DescendantOrSelf, Step::new(Axis::Child, down.test, down.predicates))
        }
        _ => (Axis::DescendantOrSelf, Step::all(Axis::Child)),
    };
    let mut predicates = vec![BoolExpr::Exists(NodeSet::Path(Start::Context, vec![below]))];
    predicates.extend(step.predicates);
    match steps.last_mut() {
        Some(last) if axis == Axis::SelfNode && last.is_slashes() => {
            *last = Step::new(Axis::DescendantOrSelf, step.test, predicates);
        }
        Some(last) if axis == Axis::SelfNode && step.test == Test::Node => {
            last.predicates.extend(predicates);
        }
        _ => steps.push(Step::new(axis, step.test, predicates)),
    }
}
