//! Functions of what is below a node.

use super::program::{Env, Func, FuncId};
use super::surroundings::Inside;
use super::values::{Op, Value};
use super::{Dag, Place};
use crate::eval::Evaluated;
use crate::image::ElementId;
use crate::plan::local::Item;

impl<'a> Dag<'a, '_> {
    /// `so_far`, joined with a function of all children.
    pub(super) fn children(
        &self,
        func: &Func<'a>,
        mut so_far: Value,
        of: FuncId,
        at: Place,
    ) -> Evaluated<Value> {
        let Item::Element(element) = at.item else { return Ok(so_far) };
        let id = self.id_of(func);
        if self.is_empty(id, at.item) {
            return Ok(so_far);
        }
        let mut inside = None;
        let mut sets = Vec::new();
        for (index, child) in self.layers.children(element).enumerate() {
            if func.op.is_final(so_far) {
                break;
            }
            if self.is_empty(id, child) {
                continue;
            }
            self.local.budget.spend(1)?;
            let env = self.env_inside(&mut inside, func, element, at.env, index)?;
            let found = self.ask(of, Place { item: child, env })?;
            match func.op {
                Op::Set => sets.push(found),
                op => so_far = self.join(op, so_far, found)?,
            }
        }
        self.with_sets(so_far, sets)
    }

    /// The surroundings of a child, which are worked out when the first child needs them.
    #[inline]
    fn env_inside(
        &self,
        inside: &mut Option<Inside>,
        func: &Func<'a>,
        element: ElementId,
        env: Env,
        index: usize,
    ) -> Evaluated<Env> {
        if func.below == 0 {
            return Ok(0);
        }
        if let Some(inside) = inside {
            return Ok(inside.env(index));
        }
        let found = self.inside(func.below, element, env)?;
        let env = found.env(index);
        *inside = Some(found);
        Ok(env)
    }

    fn with_sets(&self, own: Value, mut sets: Vec<Value>) -> Evaluated<Value> {
        if sets.is_empty() {
            return Ok(own);
        }
        sets.push(own);
        let mut values = self.values.borrow_mut();
        let (union, members) = values.union_of(sets);
        self.local.budget.spend(members)?;
        Ok(union)
    }

    /// As [`Dag::children`], of the function itself: what is below is asked in the same way.
    pub(super) fn subtrees(
        &self,
        func: &Func<'a>,
        mut so_far: Value,
        element: ElementId,
        env: Env,
        of: FuncId,
    ) -> Evaluated<Value> {
        if func.op.is_final(so_far) {
            return Ok(so_far);
        }
        let id = self.id_of(func);
        let mut inside = None;
        let mut sets = Vec::new();
        for (index, child) in self.layers.children(element).enumerate() {
            if self.is_empty(id, child) {
                continue;
            }
            self.local.budget.spend(1)?;
            let env = self.env_inside(&mut inside, func, element, env, index)?;
            let found = match child {
                Item::Element(child) => self.recalled(id, func, child, env)?,
                leaf => self.ask(of, Place { item: leaf, env })?,
            };
            match func.op {
                Op::Set => sets.push(found),
                op => so_far = self.join(op, so_far, found)?,
            }
            if func.op.is_final(so_far) {
                break;
            }
        }
        self.with_sets(so_far, sets)
    }

    /// Whether a function has nothing to find in a child.
    #[inline]
    fn is_empty(&self, id: FuncId, child: Item) -> bool {
        match child {
            Item::Element(element) => self.reached[id as usize].as_ref().is_some_and(|reached| {
                self.layers.in_last(element).is_some_and(|row| !reached.contains(row))
            }),
            _ => !self.program.func(id).leaves,
        }
    }

    fn id_of(&self, func: &Func<'a>) -> FuncId {
        func.id
    }

    pub(super) fn attributes(&self, func: &Func<'a>, of: FuncId, at: Place) -> Evaluated<Value> {
        let Item::Element(element) = at.item else { return Ok(0) };
        let env = self.of_attributes(func.below, element, at.env)?;
        let mut so_far = 0;
        for item in self.layers.attributes(element) {
            self.local.budget.spend(1)?;
            let found = self.ask(of, Place { item, env })?;
            so_far = self.join(func.op, so_far, found)?;
            if func.op.is_final(so_far) {
                break;
            }
        }
        Ok(so_far)
    }
}
