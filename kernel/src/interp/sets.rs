//! Node-sets: sorted, without duplicates.

use super::Interpreter;
use crate::eval::{Context, Evaluated, Evaluator};
use crate::tree::{Kind, Node};
use crate::xpath::ir::{Axis, BoolExpr, Cmp, NodeSet, NumExpr, Start, Step, Test};

impl<'a> Interpreter<'a, '_> {
    /// The nodes of a set in document order.
    pub(super) fn set(&self, set: &'a NodeSet, at: Context<Node>) -> Evaluated<Vec<Node>> {
        match set {
            NodeSet::Path(start, steps) => self.path(start, steps, at),
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

    fn path(&self, start: &'a Start, steps: &'a [Step], at: Context<Node>) -> Evaluated<Vec<Node>> {
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

    /// Whether a set has a node: the last step ends with the first that it finds.
    pub(super) fn has_any(&self, set: &'a NodeSet, at: Context<Node>) -> Evaluated<bool> {
        match set {
            NodeSet::Union(a, b) => Ok(self.has_any(a, at)? || self.has_any(b, at)?),
            NodeSet::Path(start, steps) if !steps.is_empty() => {
                let (last, before) = steps.split_last().expect("it is not empty");
                let nodes = self.path(start, before, at)?;
                for &node in &nodes {
                    self.budget.spend(1)?;
                    if self.leads_anywhere(last, node)? {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            _ => Ok(!self.set(set, at)?.is_empty()),
        }
    }

    fn leads_anywhere(&self, step: &'a Step, node: Node) -> Evaluated<bool> {
        if step.positional {
            return Ok(!self.step(step, &[node])?.is_empty());
        }
        let mut found = Ok(false);
        self.walk(step.axis, node, |node| {
            if !self.passes(step, node) {
                return true;
            }
            found = self.holds(step, node);
            matches!(found, Ok(false))
        })?;
        found
    }

    /// Whether a node satisfies the predicates of a step, none of which is positional.
    fn holds(&self, step: &'a Step, node: Node) -> Evaluated<bool> {
        for predicate in &step.predicates {
            if !self.bool(predicate, Context::only(node))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn step(&self, step: &'a Step, from: &[Node]) -> Evaluated<Vec<Node>> {
        let mut found = Vec::new();
        for &node in from {
            self.budget.spend(1)?;
            let start = found.len();
            let most = step.predicates.first().and_then(first_positions).unwrap_or(usize::MAX);
            self.walk(step.axis, node, |node| {
                if self.passes(step, node) {
                    found.push(node);
                }
                found.len() - start < most
            })?;
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

/// How many nodes a predicate looks at, where it only takes one of the first.
fn first_positions(predicate: &BoolExpr) -> Option<usize> {
    match predicate {
        BoolExpr::Numbers(Cmp::Eq, NumExpr::Position, NumExpr::Const(wanted)) => {
            Some(wanted.clamp(0.0, f64::from(u32::MAX)) as usize)
        }
        _ => None,
    }
}
