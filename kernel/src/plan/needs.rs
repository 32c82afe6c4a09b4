//! What of a document an expression can tell apart.
//!
//! Whatever no step can reach, no test can name and no value can contain may be left out: two
//! documents that are equal without it get the same answer. What is kept is kept with all its
//! ancestors, so that steps which lead upwards find what they look for.

use super::anchors::{ValueTest, constant};
use super::looks::Look;
use crate::xpath::ir::{Axis, BoolExpr, Cmp, NodeSet, NumExpr, Start, Step, StrExpr, Test};
use crate::xpath::parts::Part;

/// Names of an expression, by their numbers in its table; or all there are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Names {
    /// Every name.
    All,
    /// These, ascending, without duplicates.
    Some(Vec<usize>),
}

impl Names {
    fn add(&mut self, name: usize) {
        if let Names::Some(names) = self
            && let Err(at) = names.binary_search(&name)
        {
            names.insert(at, name);
        }
    }
}

/// Whose string-value is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Read {
    Document,
    Element(usize),
    AnyElement,
    Attribute(usize),
    AnyAttribute,
    Text,
}

/// The parts of a document that matter. Ancestors of what matters always do.
#[derive(Debug, Clone)]
pub struct Needs<'a> {
    /// Elements that a step may lead to.
    pub elements: Names,
    /// Attributes that a step may lead to.
    pub attributes: Names,
    /// Attributes whose elements matter, whatever their names are.
    pub bearers: Vec<usize>,
    /// Elements whose string-value matters.
    pub values: Names,
    /// Attributes whose value matters.
    pub attribute_values: Names,
    /// Whether values of texts matter.
    pub text_values: bool,
    /// Whether `xml:lang` does.
    pub language: bool,
    /// What is seen of values that do not matter otherwise.
    pub looks: Vec<(Read, Look<'a>)>,
    /// Comparisons of two sets, with what is read of either.
    pub compared: Vec<(&'a BoolExpr, Vec<Read>, Vec<Read>)>,
    /// Whether texts are nodes that a step may lead to.
    pub texts: bool,
    /// Whether comments and instructions are.
    pub others: bool,
}

/// What the last step of a set leads to, as far as string-values are concerned.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// Comments and instructions: they matter as they are, or not at all.
    Leaf,
    Document,
    Text,
    Attribute(usize),
    AnyAttribute,
    Element(usize),
    AnyElement,
    Anything,
}

type Targets = Vec<Target>;

impl<'a> Needs<'a> {
    /// Nothing at all.
    pub fn nothing() -> Self {
        let none = || Names::Some(Vec::new());
        Needs {
            elements: none(),
            attributes: none(),
            bearers: Vec::new(),
            values: none(),
            attribute_values: none(),
            text_values: false,
            language: false,
            looks: Vec::new(),
            compared: Vec::new(),
            texts: false,
            others: false,
        }
    }

    /// What a boolean depends on, evaluated at a document's root element.
    pub fn of_bool(expr: &'a BoolExpr) -> Self {
        let mut needs = Needs::nothing();
        needs.bool(expr, &vec![Target::AnyElement]);
        needs
    }

    /// What a number depends on.
    pub fn of_num(expr: &'a NumExpr) -> Self {
        let mut needs = Needs::nothing();
        needs.num(expr, &vec![Target::AnyElement]);
        needs
    }

    /// Whether values are looked at that are read so.
    pub fn look_at(&self, read: Read) -> bool {
        self.looks.iter().any(|&(other, _)| other == read)
    }

    fn all_nodes(&mut self) {
        self.elements = Names::All;
        self.texts = true;
        self.others = true;
    }

    fn bool(&mut self, expr: &'a BoolExpr, at: &Targets) {
        match expr {
            BoolExpr::Const(_) => {}
            BoolExpr::And(a, b) | BoolExpr::Or(a, b) => {
                self.bool(a, at);
                self.bool(b, at);
            }
            BoolExpr::Not(a) => self.bool(a, at),
            BoolExpr::Exists(set) => {
                self.set(set, at);
            }
            BoolExpr::Number(a) => self.num(a, at),
            BoolExpr::Texts(_, StrExpr::First(set), StrExpr::Const(text))
            | BoolExpr::SetText(_, set, StrExpr::Const(text)) => {
                self.tested(set, ValueTest::Equals(text), at);
            }
            BoolExpr::StartsWith(StrExpr::First(set), StrExpr::Const(text)) => {
                self.tested(set, ValueTest::StartsWith(text), at);
            }
            BoolExpr::Contains(StrExpr::First(set), StrExpr::Const(text)) => {
                self.tested(set, ValueTest::Contains(text), at);
            }
            BoolExpr::Text(_)
            | BoolExpr::Numbers(..)
            | BoolExpr::Texts(..)
            | BoolExpr::Contains(..)
            | BoolExpr::StartsWith(..) => self.operator(expr, at),
            BoolExpr::SetNumber(cmp, set, b) => match constant(b) {
                Some(number) => self.tested(set, ValueTest::Number(*cmp, number), at),
                None => {
                    self.seen(set, Look::Number, at);
                    self.num(b, at);
                }
            },
            BoolExpr::SetText(_, set, b) => {
                self.value(set, at);
                self.str(b, at);
            }
            BoolExpr::Sets(cmp, a, b) if !cmp.is_equality() => {
                self.seen(a, Look::Number, at);
                self.seen(b, Look::Number, at);
            }
            BoolExpr::Sets(Cmp::Eq, a, b) => {
                let (a, b) = (self.set(a, at), self.set(b, at));
                self.compared.push((expr, reads(&a), reads(&b)));
                self.read(a, Some(Look::Shared(expr)));
                self.read(b, Some(Look::Shared(expr)));
            }
            BoolExpr::Sets(_, a, b) => {
                self.value(a, at);
                self.value(b, at);
            }
            BoolExpr::Lang(a) => {
                // It looks for xml:lang on every ancestor.
                self.attributes = Names::All;
                self.language = true;
                self.str(a, at);
            }
        }
    }

    /// An operator of strings or numbers. Mostly the string-value of one node is all that it reads.
    fn operator(&mut self, expr: &'a BoolExpr, at: &Targets) {
        if let Some((set, look)) = Look::only(Part::Bool(expr)) {
            return self.seen(set, look, at);
        }
        match expr {
            BoolExpr::Texts(_, a, StrExpr::Const(text))
            | BoolExpr::Texts(_, StrExpr::Const(text), a)
            | BoolExpr::StartsWith(a, StrExpr::Const(text)) => {
                self.beginning(a, text.len() + 1, at);
            }
            BoolExpr::Texts(_, a, b) | BoolExpr::Contains(a, b) | BoolExpr::StartsWith(a, b) => {
                self.str(a, at);
                self.str(b, at);
            }
            BoolExpr::Text(a) => self.beginning(a, 1, at),
            BoolExpr::Numbers(_, a, b) => {
                self.num(a, at);
                self.num(b, at);
            }
            _ => {}
        }
    }

    /// The beginning of a string matters, up to a number of bytes.
    fn beginning(&mut self, expr: &'a StrExpr, bytes: usize, at: &Targets) {
        match expr {
            StrExpr::First(set) => self.seen(set, Look::Beginning(bytes), at),
            StrExpr::Concat(parts) => {
                parts.iter().for_each(|part| self.beginning(part, bytes, at));
            }
            _ => self.str(expr, at),
        }
    }

    fn num(&mut self, expr: &'a NumExpr, at: &Targets) {
        match expr {
            NumExpr::Const(_) | NumExpr::Position | NumExpr::Last => {}
            NumExpr::Arith(_, a, b) => {
                self.num(a, at);
                self.num(b, at);
            }
            NumExpr::Neg(a) | NumExpr::Round(_, a) => self.num(a, at),
            NumExpr::Count(set) => {
                self.set(set, at);
            }
            NumExpr::Sum(set) => self.seen(set, Look::Number, at),
            NumExpr::Text(a) | NumExpr::Length(a) => match (expr, &**a) {
                (NumExpr::Text(_), StrExpr::First(set)) => self.seen(set, Look::Number, at),
                (_, StrExpr::First(set)) => self.seen(set, Look::Length, at),
                _ => match Look::only(Part::Num(expr)) {
                    Some((set, look)) => self.seen(set, look, at),
                    None => self.str(a, at),
                },
            },
            NumExpr::Bool(a) => self.bool(a, at),
        }
    }

    fn str(&mut self, expr: &'a StrExpr, at: &Targets) {
        match expr {
            StrExpr::Const(_) => {}
            StrExpr::First(set) => self.value(set, at),
            StrExpr::Name(_, set) => {
                self.set(set, at);
            }
            StrExpr::Number(a) => self.num(a, at),
            StrExpr::Bool(a) => self.bool(a, at),
            StrExpr::Concat(parts) => parts.iter().for_each(|part| self.str(part, at)),
            StrExpr::Before(a, b) | StrExpr::After(a, b) => {
                self.str(a, at);
                self.str(b, at);
            }
            StrExpr::Substring(a, from, length) => {
                self.str(a, at);
                self.num(from, at);
                length.iter().for_each(|length| self.num(length, at));
            }
            StrExpr::Normalize(a) => self.str(a, at),
            StrExpr::Translate(a, b, c) => {
                [a, b, c].into_iter().for_each(|part| self.str(part, at))
            }
        }
    }

    /// The set's nodes and their string-values matter.
    fn value(&mut self, set: &'a NodeSet, at: &Targets) {
        let targets = self.set(set, at);
        self.read(targets, None);
    }

    /// The set's nodes matter, and of their string-values which of them pass a test.
    fn tested(&mut self, set: &'a NodeSet, test: ValueTest<'a>, at: &Targets) {
        self.seen(set, Look::Test(test), at);
    }

    /// The set's nodes matter, and what is seen of their string-values.
    fn seen(&mut self, set: &'a NodeSet, look: Look<'a>, at: &Targets) {
        let targets = self.set(set, at);
        self.read(targets, Some(look));
    }

    fn read(&mut self, targets: Targets, look: Option<Look<'a>>) {
        for read in reads(&targets) {
            match (read, look) {
                (_, Some(look)) => self.looks.push((read, look)),
                (Read::Text, None) => self.text_values = true,
                (Read::Attribute(name), None) => self.attribute_values.add(name),
                (Read::AnyAttribute, None) => self.attribute_values = Names::All,
                (Read::Element(name), None) => self.values.add(name),
                (Read::AnyElement | Read::Document, None) => self.values = Names::All,
            }
        }
    }

    /// The set's nodes matter: what they are.
    fn set(&mut self, set: &'a NodeSet, at: &Targets) -> Targets {
        match set {
            NodeSet::Path(start, steps) => {
                let targets = match start {
                    Start::Root => vec![Target::Document],
                    Start::Context => at.clone(),
                    Start::Set(set) => self.set(set, at),
                };
                self.steps(steps, targets)
            }
            NodeSet::Filter(set, predicate) => {
                let targets = self.set(set, at);
                self.bool(predicate, &targets);
                targets
            }
            NodeSet::Union(a, b) => {
                let mut targets = self.set(a, at);
                targets.extend(self.set(b, at));
                targets
            }
        }
    }

    fn steps(&mut self, steps: &'a [Step], mut targets: Targets) -> Targets {
        for (index, step) in steps.iter().enumerate() {
            let after = index.checked_sub(1).is_some_and(|before| steps[before].is_slashes());
            if !step.is_slashes() || index + 1 == steps.len() {
                self.step(step, after);
            }
            targets = target(step, targets);
            for predicate in &step.predicates {
                self.bool(predicate, &targets);
            }
        }
        targets
    }

    /// A step from nodes that are kept; or, `after` the first half of `//`, from every node.
    fn step(&mut self, step: &Step, after: bool) {
        match step.axis {
            Axis::Attribute => match step.test {
                Test::Name(name) => {
                    self.attributes.add(name);
                    if after && !self.bearers.contains(&name) {
                        self.bearers.push(name);
                    }
                }
                _ => {
                    self.attributes = Names::All;
                    if after {
                        self.elements = Names::All;
                    }
                }
            },
            // Ancestors of what is kept are kept; of what is left out they are not.
            Axis::Parent | Axis::Ancestor | Axis::AncestorOrSelf | Axis::SelfNode if !after => {}
            Axis::Child
            | Axis::Descendant
            | Axis::DescendantOrSelf
            | Axis::SelfNode
            | Axis::Following
            | Axis::FollowingSibling
            | Axis::Preceding
            | Axis::PrecedingSibling => self.downward(step, after),
            Axis::Parent | Axis::Ancestor | Axis::AncestorOrSelf => self.all_nodes(),
        }
        use Axis::{Following, FollowingSibling, Preceding, PrecedingSibling};
        let sideways = [Following, FollowingSibling, Preceding, PrecedingSibling];
        if after && sideways.contains(&step.axis) {
            self.all_nodes();
        }
    }

    fn downward(&mut self, step: &Step, after: bool) {
        match step.test {
            Test::Name(name) | Test::AnyIn(name) => self.elements.add(name),
            Test::Any => self.elements = Names::All,
            Test::Text if step.axis == Axis::Child && !after => self.texts = true,
            Test::Text => {
                self.elements = Names::All;
                self.texts = true;
            }
            Test::Node | Test::Comment | Test::Instruction(_) => self.all_nodes(),
        }
    }
}

/// What is read of the string-values of nodes.
fn reads(targets: &Targets) -> Vec<Read> {
    let of = |target: &Target| match *target {
        Target::Leaf => vec![],
        Target::Document => vec![Read::Document],
        Target::Text => vec![Read::Text],
        Target::Attribute(name) => vec![Read::Attribute(name)],
        Target::AnyAttribute => vec![Read::AnyAttribute],
        Target::Element(name) => vec![Read::Element(name)],
        Target::AnyElement => vec![Read::AnyElement],
        Target::Anything => vec![Read::AnyElement, Read::AnyAttribute, Read::Text],
    };
    targets.iter().flat_map(of).collect()
}

fn target(step: &Step, before: Targets) -> Targets {
    match (step.axis, &step.test) {
        (Axis::SelfNode, Test::Node) => before,
        (_, Test::Text) => vec![Target::Text],
        (_, Test::Comment | Test::Instruction(_)) => vec![Target::Leaf],
        (Axis::Attribute, Test::Name(name)) => vec![Target::Attribute(*name)],
        (Axis::Attribute, _) => vec![Target::AnyAttribute],
        // An attribute is no element, whatever its name: `@a/self::a` is empty.
        (_, Test::Name(name)) => vec![Target::Element(*name)],
        (_, Test::Any | Test::AnyIn(_)) => vec![Target::AnyElement],
        // The document is an element without a name.
        (Axis::Parent | Axis::Ancestor, Test::Node) => vec![Target::AnyElement],
        _ => vec![Target::Anything],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xpath::Expression;

    fn needs(text: &str) -> Needs<'static> {
        let expression = Expression::new(text, &Default::default()).expect(text);
        Needs::of_bool(Box::leak(Box::new(expression)).root())
    }

    #[test]
    fn names_of_steps_are_kept_and_ancestors_come_along() {
        let found = needs("//a[ancestor::b/@c]");
        assert!(matches!(&found.elements, Names::Some(names) if names.len() == 1));
        assert!(matches!(&found.attributes, Names::Some(names) if names.len() == 1));
        assert_eq!(found.values, Names::Some(vec![]));
        assert!(!found.texts && !found.others && found.bearers.is_empty());
    }

    #[test]
    fn what_every_node_leads_to_keeps_every_node() {
        assert_eq!(needs("//*").elements, Names::All);
        assert_eq!(needs("//..").elements, Names::All);
        assert_eq!(needs("//preceding::b").elements, Names::All);
        assert!(
            matches!(needs("//a/preceding::b").elements, Names::Some(names) if names.len() == 2)
        );
        assert!(needs("//node()").others);
        assert!(needs("//text()").texts);
    }

    #[test]
    fn an_attribute_of_any_element_keeps_the_elements_that_bear_it() {
        assert_eq!(needs("//@a").bearers.len(), 1);
        assert!(needs("//b/@a").bearers.is_empty());
    }

    #[test]
    fn values_are_those_of_the_last_step() {
        let compared = needs("//a/b != //c/@d");
        assert!(matches!(compared.values, Names::Some(names) if names.len() == 1));
        assert!(matches!(compared.attribute_values, Names::Some(names) if names.len() == 1));
        assert_eq!(needs("//a/* != //b").values, Names::All);
        assert!(needs("//text() != //b").text_values && !needs("//text() = 'x'").text_values);
    }

    #[test]
    fn of_a_value_that_is_only_tested_the_outcome_is_kept() {
        let tested = needs("count(//a[. = 'x' or starts-with(@b, 'y') or c > 4]) = 1");
        assert_eq!(tested.looks.len(), 3);
        assert_eq!(tested.values, Names::Some(vec![]));
        assert_eq!(tested.attribute_values, Names::Some(vec![]));
    }
}
