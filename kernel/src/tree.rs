//! One document expanded to rows in document order, for the axes that leave a subtree.

use crate::budget::Budget;
use crate::eval::Evaluated;
use crate::image::{Child, ElementId, NameId, Store};
use crate::intern::StrId;

/// A row of a [`Tree`].
pub type Node = u32;

/// What a row stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Kind {
    Document,
    Element,
    Attribute,
    Text,
    Comment,
    Instruction,
}

/// Which nodes an expanded document has.
pub trait Keep {
    /// Whether an element has a row. So have the document, its root and whatever contains a row.
    fn element(&self, id: ElementId) -> bool;
    /// Whether attributes of a name have rows.
    fn attribute(&self, name: NameId) -> bool;
    /// Whether texts have rows.
    fn texts(&self) -> bool;
    /// Whether comments and instructions have rows.
    fn others(&self) -> bool;
}

/// Keeps every node.
#[derive(Debug, Clone, Copy)]
pub struct Whole;

impl Keep for Whole {
    fn element(&self, _: ElementId) -> bool {
        true
    }

    fn attribute(&self, _: NameId) -> bool {
        true
    }

    fn texts(&self) -> bool {
        true
    }

    fn others(&self) -> bool {
        true
    }
}

/// A node. The rows from it up to `end` are its attributes and its subtree.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// What it is.
    pub kind: Kind,
    /// The name of an element, attribute or instruction.
    pub name: NameId,
    /// The value of an attribute, text, comment or instruction; the row in the store of an element
    /// or a document.
    pub value: u32,
    /// The row that contains it; the document's own for the document.
    pub parent: Node,
    /// One past its subtree.
    pub end: Node,
}

/// The rows of a document in document order. Row 0 is the document.
#[derive(Debug, Clone, Default)]
pub struct Tree {
    rows: Vec<Row>,
}

impl Tree {
    /// Replaces the rows by those of `document` that are kept; the allocation stays. Costs a step
    /// for each node that is looked at.
    pub fn expand(
        &mut self,
        store: &Store,
        document: ElementId,
        keep: &impl Keep,
        budget: &Budget,
    ) -> Evaluated<()> {
        self.rows.clear();
        self.add(store, document, (0, Kind::Document), keep, budget)
    }

    /// The row of a node.
    #[inline]
    pub fn row(&self, node: Node) -> Row {
        self.rows[node as usize]
    }

    /// How many rows there are.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether nothing has been expanded.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The rows of a range of nodes.
    #[inline]
    pub fn rows(&self, from: Node, to: Node) -> &[Row] {
        &self.rows[from as usize..to as usize]
    }

    /// The first row after a node's attributes.
    #[inline]
    pub fn first_child(&self, node: Node) -> Node {
        let end = self.row(node).end;
        let mut at = node + 1;
        while at < end && self.row(at).kind == Kind::Attribute {
            at += 1;
        }
        at
    }

    // Depth is bounded by the parser, and where a file is opened: so recursion is.
    fn add(
        &mut self,
        store: &Store,
        id: ElementId,
        (parent, kind): (Node, Kind),
        keep: &impl Keep,
        budget: &Budget,
    ) -> Evaluated<()> {
        budget.spend(store.width(id))?;
        let node = self.rows.len() as Node;
        let name = store.elements()[id as usize].name;
        self.rows.push(Row { kind, name, value: id, parent, end: 0 });
        for &pair in store.attributes(id) {
            let (name, value) = store.pair(pair);
            if keep.attribute(name) {
                self.leaf(Kind::Attribute, name, value, node);
            }
        }
        for child in store.children(id) {
            match child {
                Child::Element(child) if keep.element(child) => {
                    self.add(store, child, (node, Kind::Element), keep, budget)?;
                }
                Child::Text(value) if keep.texts() => self.leaf(Kind::Text, 0, value, node),
                Child::Comment(value) if keep.others() => self.leaf(Kind::Comment, 0, value, node),
                Child::Instruction(pair) if keep.others() => {
                    let (name, value) = store.pair(pair);
                    self.leaf(Kind::Instruction, name, value, node);
                }
                _ => {}
            }
        }
        self.rows[node as usize].end = self.rows.len() as Node;
        Ok(())
    }

    fn leaf(&mut self, kind: Kind, name: NameId, value: StrId, parent: Node) {
        let end = self.rows.len() as Node + 1;
        self.rows.push(Row { kind, name, value, parent, end });
    }
}
