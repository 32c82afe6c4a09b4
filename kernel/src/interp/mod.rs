//! The general evaluator: any compiled expression on one expanded document.

mod axes;
mod sets;

use std::borrow::Cow;

use crate::budget::Budget;
use crate::error::BudgetExceeded;
use crate::image::Store;
use crate::tree::{Kind, Node, Tree};
use crate::xpath::bound::BoundName;
use crate::xpath::ir::{BoolExpr, NameKind, NodeSet, NumExpr, StrExpr};
use crate::xpath::{number, text};

/// The context of an evaluation.
#[derive(Debug, Clone, Copy)]
pub struct Context {
    /// The context node.
    pub node: Node,
    /// Its position, from 1.
    pub position: usize,
    /// The size of its context.
    pub size: usize,
}

impl Context {
    /// The context of a whole expression: the document's root element, as lxml has it.
    pub fn of(tree: &Tree) -> Self {
        let is_root =
            |&node: &Node| tree.row(node).parent == 0 && tree.row(node).kind == Kind::Element;
        let node = (1..tree.len() as Node).find(is_root).unwrap_or(0);
        Context { node, position: 1, size: 1 }
    }
}

pub(crate) type Evaluated<T> = Result<T, BudgetExceeded>;

/// An expression's names bound to a store, and the document to evaluate on.
#[derive(Debug, Clone, Copy)]
pub struct Interpreter<'a> {
    /// Where names and values are.
    pub store: &'a Store,
    /// The expression's names.
    pub names: &'a [BoundName],
    /// The document.
    pub tree: &'a Tree,
    /// The steps that are left.
    pub budget: &'a Budget,
}

impl<'a> Interpreter<'a> {
    /// Evaluates to a boolean.
    pub fn bool(&self, expr: &'a BoolExpr, at: Context) -> Evaluated<bool> {
        Ok(match expr {
            BoolExpr::Const(value) => *value,
            BoolExpr::And(a, b) => self.bool(a, at)? && self.bool(b, at)?,
            BoolExpr::Or(a, b) => self.bool(a, at)? || self.bool(b, at)?,
            BoolExpr::Not(a) => !self.bool(a, at)?,
            BoolExpr::Exists(set) => self.exists(set, at)?,
            BoolExpr::Number(a) => number::truth(self.num(a, at)?),
            BoolExpr::Text(a) => !self.str(a, at)?.is_empty(),
            BoolExpr::Numbers(cmp, a, b) => cmp.numbers(self.num(a, at)?, self.num(b, at)?),
            BoolExpr::Texts(unequal, a, b) => (self.str(a, at)? == self.str(b, at)?) != *unequal,
            BoolExpr::SetNumber(cmp, set, b) => {
                let number = self.num(b, at)?;
                let nodes = self.set(set, at)?;
                self.any(&nodes, |value| cmp.numbers(number::parse(value), number))?
            }
            BoolExpr::SetText(unequal, set, b) => {
                let wanted = self.str(b, at)?;
                let nodes = self.set(set, at)?;
                self.any(&nodes, |value| (value == wanted) != *unequal)?
            }
            BoolExpr::Sets(cmp, a, b) => {
                let (a, b) = (self.set(a, at)?, self.set(b, at)?);
                self.compare_sets(*cmp, &a, &b)?
            }
            BoolExpr::Contains(a, b) => text::contains(&self.str(a, at)?, &self.str(b, at)?),
            BoolExpr::StartsWith(a, b) => self.str(a, at)?.starts_with(&*self.str(b, at)?),
            BoolExpr::Lang(a) => self.is_language(at.node, &self.str(a, at)?),
        })
    }

    /// Evaluates to a number.
    pub fn num(&self, expr: &'a NumExpr, at: Context) -> Evaluated<f64> {
        Ok(match expr {
            NumExpr::Const(value) => *value,
            NumExpr::Position => at.position as f64,
            NumExpr::Last => at.size as f64,
            NumExpr::Arith(arith, a, b) => arith.apply(self.num(a, at)?, self.num(b, at)?),
            NumExpr::Neg(a) => -self.num(a, at)?,
            NumExpr::Count(set) => self.set(set, at)?.len() as f64,
            NumExpr::Sum(set) => {
                let mut sum = 0.0;
                for node in self.set(set, at)? {
                    sum += number::parse(&self.string_value(node)?);
                }
                sum
            }
            NumExpr::Text(a) => number::parse(&self.str(a, at)?),
            NumExpr::Bool(a) => f64::from(u8::from(self.bool(a, at)?)),
            NumExpr::Length(a) => self.str(a, at)?.chars().count() as f64,
            NumExpr::Round(rounding, a) => number::round(*rounding, self.num(a, at)?),
        })
    }

    /// Evaluates to a string.
    pub fn str(&self, expr: &'a StrExpr, at: Context) -> Evaluated<Cow<'a, str>> {
        let value = match expr {
            StrExpr::Const(value) => Cow::Borrowed(value.as_str()),
            StrExpr::First(set) => match self.first(set, at)? {
                Some(node) => self.string_value(node)?,
                None => Cow::Borrowed(""),
            },
            StrExpr::Number(a) => Cow::Owned(number::format(self.num(a, at)?)),
            StrExpr::Bool(a) => Cow::Borrowed(if self.bool(a, at)? { "true" } else { "false" }),
            StrExpr::Concat(parts) => {
                let mut joined = Cow::Borrowed("");
                for part in parts {
                    joined = text::join(joined, self.str(part, at)?);
                }
                joined
            }
            StrExpr::Before(a, b) => {
                let mark = self.str(b, at)?;
                map(self.str(a, at)?, |value| text::before(value, &mark))
            }
            StrExpr::After(a, b) => {
                let mark = self.str(b, at)?;
                map(self.str(a, at)?, |value| text::after(value, &mark))
            }
            StrExpr::Substring(a, from, length) => {
                let from = self.num(from, at)?;
                let length = length.as_ref().map(|length| self.num(length, at)).transpose()?;
                map(self.str(a, at)?, |value| text::substring(value, from, length))
            }
            StrExpr::Normalize(a) => Cow::Owned(text::normalize(&self.str(a, at)?)),
            StrExpr::Translate(a, from, to) => {
                let (value, from, to) = (self.str(a, at)?, self.str(from, at)?, self.str(to, at)?);
                self.budget.spend(value.len() / 16 * (1 + from.len() / 4))?;
                Cow::Owned(text::translate(&value, &from, &to))
            }
            StrExpr::Name(kind, set) => match self.first(set, at)? {
                Some(node) => self.name(*kind, node),
                None => Cow::Borrowed(""),
            },
        };
        self.budget.read(&value)?;
        Ok(value)
    }

    /// The string-value of a node, borrowed from the store where it is one text.
    pub fn string_value(&self, node: Node) -> Evaluated<Cow<'a, str>> {
        let row = self.tree.row(node);
        let strings = self.store.strings();
        if !matches!(row.kind, Kind::Element | Kind::Document) {
            return Ok(Cow::Borrowed(strings.get(row.value)));
        }
        self.budget.spend((row.end - node) as usize)?;
        let mut joined = Cow::Borrowed("");
        for row in self.tree.rows(node, row.end).iter().filter(|row| row.kind == Kind::Text) {
            joined = text::join(joined, Cow::Borrowed(strings.get(row.value)));
        }
        self.budget.read(&joined)?;
        Ok(joined)
    }

    fn name(&self, kind: NameKind, node: Node) -> Cow<'a, str> {
        let row = self.tree.row(node);
        match row.kind {
            Kind::Element | Kind::Attribute | Kind::Instruction => {
                Cow::Owned(name_text(self.store, kind, row.name))
            }
            _ => Cow::Borrowed(""),
        }
    }

    fn is_language(&self, mut node: Node, wanted: &str) -> bool {
        let strings = self.store.strings();
        loop {
            for row in self.tree.rows(node + 1, self.tree.first_child(node)) {
                let name = self.store.names()[row.name as usize];
                if strings.get(name.local) == "lang" && strings.get(name.uri) == XML_URI {
                    return text::is_language(strings.get(row.value), wanted);
                }
            }
            if node == 0 {
                return false;
            }
            node = self.tree.row(node).parent;
        }
    }

    fn any(&self, nodes: &[Node], test: impl Fn(&str) -> bool) -> Evaluated<bool> {
        for &node in nodes {
            if test(&self.string_value(node)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn exists(&self, set: &'a NodeSet, at: Context) -> Evaluated<bool> {
        Ok(!self.set(set, at)?.is_empty())
    }

    fn first(&self, set: &'a NodeSet, at: Context) -> Evaluated<Option<Node>> {
        Ok(self.set(set, at)?.first().copied())
    }
}

const XML_URI: &str = "http://www.w3.org/XML/1998/namespace";

/// What `local-name()`, `name()` and `namespace-uri()` say of a name.
pub(crate) fn name_text(store: &Store, kind: NameKind, name: crate::image::NameId) -> String {
    let name = store.names()[name as usize];
    let strings = store.strings();
    match kind {
        NameKind::Local => strings.get(name.local).to_owned(),
        NameKind::Uri => strings.get(name.uri).to_owned(),
        NameKind::Qualified if name.prefix == 0 => strings.get(name.local).to_owned(),
        NameKind::Qualified => format!("{}:{}", strings.get(name.prefix), strings.get(name.local)),
    }
}

/// Takes a part of a string without copying a borrowed one.
pub(crate) fn map<'a>(value: Cow<'a, str>, part: impl FnOnce(&str) -> &str) -> Cow<'a, str> {
    match value {
        Cow::Borrowed(value) => {
            let chosen = part(value);
            let start = chosen.as_ptr() as usize - value.as_ptr() as usize;
            // An empty part may be a constant from elsewhere.
            if chosen.is_empty() {
                Cow::Borrowed("")
            } else {
                Cow::Borrowed(&value[start..start + chosen.len()])
            }
        }
        Cow::Owned(value) => Cow::Owned(part(&value).to_owned()),
    }
}
