//! The axes, each in its own order.

use super::Interpreter;
use crate::eval::Evaluated;
use crate::tree::{Kind, Node};
use crate::xpath::ir::Axis;

impl Interpreter<'_, '_> {
    /// Visits the nodes of an axis, nearest first, until a visit answers false. Costs a step for
    /// every row looked at, attributes that only stand in the way included.
    pub(super) fn walk(
        &self,
        axis: Axis,
        node: Node,
        mut visit: impl FnMut(Node) -> bool,
    ) -> Evaluated<()> {
        let tree = self.tree;
        let row = tree.row(node);
        let mut visited: Node = 0;
        // Rows that all of the axis looks at, and the last one that was visited.
        let mut skipped: Node = 0;
        let mut last = node;
        let mut visit = |node: Node| {
            visited += 1;
            last = node;
            visit(node)
        };
        let is_done = match axis {
            Axis::SelfNode => !visit(node),
            Axis::Parent => node != 0 && !visit(row.parent),
            Axis::Ancestor => !self.ancestors(node).all(visit),
            Axis::AncestorOrSelf => !(visit(node) && self.ancestors(node).all(visit)),
            Axis::Attribute => !(node + 1..tree.first_child(node)).all(visit),
            Axis::Child => {
                let first = tree.first_child(node);
                skipped = first - node;
                !self.siblings(first, row.end).all(visit)
            }
            Axis::Descendant => {
                skipped = row.end - node;
                !self.content(node + 1, row.end).all(visit)
            }
            Axis::DescendantOrSelf => {
                skipped = row.end - node;
                !(visit(node) && self.content(node + 1, row.end).all(visit))
            }
            // Attributes have no siblings.
            Axis::FollowingSibling if row.kind != Kind::Attribute && node != 0 => {
                !self.siblings(row.end, tree.row(row.parent).end).all(visit)
            }
            Axis::PrecedingSibling if row.kind != Kind::Attribute && node != 0 => {
                let first = tree.first_child(row.parent);
                let before: Vec<Node> = self.siblings(first, node).collect();
                self.budget.spend(before.len() + (first - row.parent) as usize)?;
                !before.into_iter().rev().all(visit)
            }
            // libxml2 begins after the element that bears an attribute, so that its children do
            // not follow it.
            Axis::Following => {
                let from =
                    if row.kind == Kind::Attribute { tree.row(row.parent).end } else { row.end };
                skipped = tree.len() as Node - from;
                !self.content(from, tree.len() as Node).all(visit)
            }
            Axis::Preceding => {
                let before = if row.kind == Kind::Attribute { row.parent } else { node };
                // libxml2 stops before a first child of the document that has children.
                let first = if node != 0 && tree.first_child(1) < tree.row(1).end { 2 } else { 1 };
                skipped = before.saturating_sub(first);
                !(first..before)
                    .rev()
                    .filter(|&other| tree.row(other).kind != Kind::Attribute)
                    .filter(|&other| tree.row(other).end <= before)
                    .all(visit)
            }
            Axis::FollowingSibling | Axis::PrecedingSibling => false,
        };
        let passed = if is_done { skipped.min(last.abs_diff(node)) } else { skipped };
        self.budget.spend(visited.max(passed) as usize)
    }

    fn ancestors(&self, node: Node) -> impl Iterator<Item = Node> + '_ {
        let mut at = node;
        std::iter::from_fn(move || {
            if at == 0 {
                return None;
            }
            at = self.tree.row(at).parent;
            Some(at)
        })
    }

    fn siblings(&self, from: Node, end: Node) -> impl Iterator<Item = Node> + '_ {
        let mut at = from;
        std::iter::from_fn(move || {
            let node = (at < end).then_some(at)?;
            at = self.tree.row(node).end;
            Some(node)
        })
    }

    /// The nodes from one row up to another without attributes.
    fn content(&self, from: Node, end: Node) -> impl Iterator<Item = Node> + '_ {
        (from..end).filter(|&node| self.tree.row(node).kind != Kind::Attribute)
    }
}
