//! The general evaluator: any compiled expression on one expanded document.

mod axes;
mod sets;

use std::borrow::Cow;

use crate::budget::Budget;
use crate::eval::{Context, Evaluated, Evaluator, name_text};
use crate::image::{Child, ElementId, Store};
use crate::tree::{Kind, Node, Tree};
use crate::xpath::bound::BoundName;
use crate::xpath::ir::{NameKind, NodeSet};
use crate::xpath::text;

/// The context of a whole expression: the document's root element, as lxml has it.
pub fn outermost(tree: &Tree) -> Context<Node> {
    let is_root = |&node: &Node| tree.row(node).parent == 0 && tree.row(node).kind == Kind::Element;
    Context::only((1..tree.len() as Node).find(is_root).unwrap_or(0))
}

/// An expression's names bound to a store, and the document to evaluate on.
#[derive(Debug, Clone, Copy)]
pub struct Interpreter<'a, 't> {
    /// Where names and values are.
    pub store: &'a Store,
    /// The expression's names.
    pub names: &'t [BoundName],
    /// The document.
    pub tree: &'t Tree,
    /// The steps that are left.
    pub budget: &'t Budget,
}

impl<'a> Evaluator<'a> for Interpreter<'a, '_> {
    type Node = Node;

    fn budget(&self) -> &Budget {
        self.budget
    }

    fn exists(&self, set: &'a NodeSet, at: Context<Node>) -> Evaluated<bool> {
        self.has_any(set, at)
    }

    fn any(
        &self,
        set: &'a NodeSet,
        at: Context<Node>,
        test: &dyn Fn(&str) -> bool,
    ) -> Evaluated<bool> {
        for node in self.set(set, at)? {
            if test(&self.string_value(node)?) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn count(&self, set: &'a NodeSet, at: Context<Node>) -> Evaluated<usize> {
        Ok(self.set(set, at)?.len())
    }

    fn values(&self, set: &'a NodeSet, at: Context<Node>) -> Evaluated<Vec<Cow<'a, str>>> {
        self.set(set, at)?.into_iter().map(|node| self.string_value(node)).collect()
    }

    fn first(&self, set: &'a NodeSet, at: Context<Node>) -> Evaluated<Cow<'a, str>> {
        match self.set(set, at)?.first() {
            Some(&node) => self.string_value(node),
            None => Ok(Cow::Borrowed("")),
        }
    }

    fn name(&self, kind: NameKind, set: &'a NodeSet, at: Context<Node>) -> Evaluated<Cow<'a, str>> {
        let Some(&node) = self.set(set, at)?.first() else { return Ok(Cow::Borrowed("")) };
        let row = self.tree.row(node);
        Ok(match row.kind {
            Kind::Element | Kind::Attribute | Kind::Instruction => {
                name_text(self.store, kind, row.name)
            }
            _ => Cow::Borrowed(""),
        })
    }

    fn is_language(&self, mut node: Node, wanted: &str) -> Evaluated<bool> {
        let strings = self.store.strings();
        loop {
            let first_child = self.tree.first_child(node);
            self.budget.spend((first_child - node) as usize)?;
            for row in self.tree.rows(node + 1, first_child) {
                if self.store.is_language(row.name) {
                    return Ok(text::is_language(strings.get(row.value), wanted));
                }
            }
            if node == 0 {
                return Ok(false);
            }
            node = self.tree.row(node).parent;
        }
    }
}

impl<'a> Interpreter<'a, '_> {
    /// The string-value of a node, borrowed from the store where it is one text.
    fn string_value(&self, node: Node) -> Evaluated<Cow<'a, str>> {
        let row = self.tree.row(node);
        if matches!(row.kind, Kind::Element | Kind::Document) {
            // The expanded document may be without its texts.
            let mut joined = Cow::Borrowed("");
            self.join_texts(row.value, &mut joined)?;
            return Ok(joined);
        }
        let value = self.store.strings().get(row.value);
        // Whoever asks for a value reads it, and may ask again for every node there is.
        self.budget.read(value)?;
        Ok(Cow::Borrowed(value))
    }

    // Depth is bounded by the parser, and where a file is opened: so recursion is.
    fn join_texts(&self, id: ElementId, joined: &mut Cow<'a, str>) -> Evaluated<()> {
        self.budget.spend(self.store.width(id))?;
        for child in self.store.children(id) {
            match child {
                Child::Element(child) => self.join_texts(child, joined)?,
                Child::Text(value) => {
                    let value = self.store.strings().get(value);
                    self.budget.read(value)?;
                    *joined = text::join(std::mem::take(joined), Cow::Borrowed(value));
                }
                Child::Comment(_) | Child::Instruction(_) => {}
            }
        }
        Ok(())
    }
}
