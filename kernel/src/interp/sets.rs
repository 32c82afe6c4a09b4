//! Node-sets: sorted, without duplicates.

use super::Interpreter;
use crate::eval::{Context, Evaluated, Evaluator};
use crate::tree::{Kind, Node};
use crate::xpath::ir::{Axis, BoolExpr, NodeSet, Start, Step, Test};

impl<'a> Interpreter<'a, '_> {
    /// The nodes of a set in document order.
    pub(super) fn set(&self, set: &'a NodeSet, at: Context<Node>) -> Evaluated<Vec<Node>> {
        match set {
            NodeSet::Path(start, steps) => {
                let mut nodes = match start {
                    Start::Root => vec![0],
                    Start::Context => vec![at.node],
                    Start::Set(set) => self.set(set, at)?,
                };
                for step in steps {
                    nodes = self.step(step, &nodes)?;
                }
                Ok(nodes)
            }
            NodeSet::Filter(set, predicate) => {
                let mut nodes = self.set(set, at)?;
                self.filter(predicate, &mut nodes, 0)?;
                Ok(nodes)
            }
            NodeSet::Union(a, b) => {
                let mut nodes = self.set(a, at)?;
                nodes.extend(self.set(b, at)?);
                // A union of unions sorts the same nodes again and again.
                self.budget.spend(nodes.len())?;
                nodes.sort_unstable();
                nodes.dedup();
                Ok(nodes)
            }
        }
    }

    fn step(&self, step: &'a Step, from: &[Node]) -> Evaluated<Vec<Node>> {
        let mut found = Vec::new();
        for &node in from {
            self.budget.spend(1)?;
            let start = found.len();
            self.walk(step.axis, node, &mut found, |node| self.passes(step, node))?;
            for predicate in &step.predicates {
                self.filter(predicate, &mut found, start)?;
            }
            if step.axis.is_reverse() {
                found[start..].reverse();
            }
        }
        if from.len() > 1 && !found.is_sorted_by(|a, b| a < b) {
            found.sort_unstable();
            found.dedup();
        }
        Ok(found)
    }

    /// Keeps the nodes from `start` on that satisfy a predicate; positions are their order.
    fn filter(
        &self,
        predicate: &'a BoolExpr,
        nodes: &mut Vec<Node>,
        start: usize,
    ) -> Evaluated<()> {
        let size = nodes.len() - start;
        let mut kept = start;
        for index in start..nodes.len() {
            self.budget.spend(1)?;
            let at = Context { node: nodes[index], position: index - start + 1, size };
            if self.bool(predicate, at)? {
                nodes[kept] = nodes[index];
                kept += 1;
            }
        }
        nodes.truncate(kept);
        Ok(())
    }

    #[inline]
    fn passes(&self, step: &Step, node: Node) -> bool {
        let row = self.tree.row(node);
        let principal = if step.axis == Axis::Attribute { Kind::Attribute } else { Kind::Element };
        match &step.test {
            Test::Node => true,
            Test::Text => row.kind == Kind::Text,
            Test::Comment => row.kind == Kind::Comment,
            Test::Instruction(target) => {
                let name = || {
                    let local = self.store.names()[row.name as usize].local;
                    self.store.strings().get(local)
                };
                row.kind == Kind::Instruction
                    && target.as_ref().is_none_or(|target| target == name())
            }
            Test::Any => row.kind == principal,
            Test::AnyIn(name) | Test::Name(name) => {
                row.kind == principal && self.names[*name].matches(row.name)
            }
        }
    }
}
