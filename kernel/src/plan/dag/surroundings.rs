//! What the surroundings of a node come to, worked out from those of its parent.

use super::program::{Atom, Env, Way};
use super::values::Value;
use super::{Dag, Place};
use crate::eval::Evaluated;
use crate::image::ElementId;
use crate::plan::local::Item;
use crate::xpath::ir::Step;

/// The surroundings of the children of an element.
pub enum Inside {
    /// All alike.
    Same(Env),
    Each(Vec<Env>),
}

impl Inside {
    #[inline]
    pub fn env(&self, index: usize) -> Env {
        match self {
            Inside::Same(env) => *env,
            Inside::Each(envs) => envs[index],
        }
    }
}

impl<'a> Dag<'a, '_> {
    #[inline]
    pub fn field(&self, atom: usize, env: Env) -> Value {
        let atom = &self.program.atoms[atom];
        self.see(atom.bits);
        ((env & atom.bits) >> atom.shift) as Value
    }

    fn filled(&self, atom: &Atom<'a>, value: Value) -> Evaluated<Env> {
        let field = Env::from(value) << atom.shift;
        if field & !atom.bits != 0 || field >> atom.shift != Env::from(value) {
            return self.beyond();
        }
        Ok(field)
    }

    /// The surroundings of a document: what its own absolute sets come to.
    pub fn of_document(&self, document: ElementId) -> Evaluated<Env> {
        let mut env = 0;
        for atom in self.program.atoms.iter().filter(|atom| matches!(atom.way, Way::Document)) {
            let value = self.ask(atom.of, Place { item: Item::Element(document), env })?;
            env |= self.filled(atom, value)?;
        }
        Ok(env)
    }

    /// The wanted fields for the attributes of an element.
    pub fn of_attributes(&self, wanted: Env, element: ElementId, env: Env) -> Evaluated<Env> {
        if wanted == 0 {
            return Ok(0);
        }
        let mut same = 0;
        for atom in self.program.atoms.iter().filter(|atom| atom.bits & wanted != 0) {
            same |= match atom.way {
                // libxml2 begins after the element that bears an attribute.
                Way::Following | Way::Preceding => env & atom.bits,
                _ if atom.is_sideways() => 0,
                _ => self.field_from_above(atom, element, env)?,
            };
        }
        Ok(same)
    }

    /// The wanted fields for the children of an element.
    pub fn inside(&self, wanted: Env, element: ElementId, env: Env) -> Evaluated<Inside> {
        if wanted == 0 {
            return Ok(Inside::Same(0));
        }
        let mut inside = Inside::Same(0);
        for atom in self.program.atoms.iter().filter(|atom| atom.bits & wanted != 0) {
            self.local.budget.spend(1)?;
            if atom.is_sideways() {
                let mut envs = match inside {
                    Inside::Same(same) => vec![same; self.layers.children(element).len()],
                    Inside::Each(envs) => envs,
                };
                self.fields_from_beside(atom, element, env, &mut envs)?;
                inside = Inside::Each(envs);
                continue;
            }
            let field = self.field_from_above(atom, element, env)?;
            match &mut inside {
                Inside::Same(same) => *same |= field,
                Inside::Each(envs) => envs.iter_mut().for_each(|env| *env |= field),
            }
        }
        Ok(inside)
    }

    /// A field that is the same for whatever stands directly below an element.
    fn field_from_above(&self, atom: &Atom<'a>, element: ElementId, env: Env) -> Evaluated<Env> {
        let at = Place { item: Item::Element(element), env };
        match atom.way {
            Way::Parent => {
                let value = self.ask(atom.of, at)?;
                self.filled(atom, value)
            }
            Way::Ancestor => {
                let above = ((env & atom.bits) >> atom.shift) as Value;
                if atom.op.is_final(above) {
                    return Ok(env & atom.bits);
                }
                let own = self.ask(atom.of, at)?;
                let joined = self.join(atom.op, above, own)?;
                self.filled(atom, joined)
            }
            Way::Language => match self.own_language(element)? {
                Some(value) => self.filled(atom, value),
                None => Ok(env & atom.bits),
            },
            _ => Ok(env & atom.bits),
        }
    }

    /// Adds a field in which siblings differ.
    fn fields_from_beside(
        &self,
        atom: &Atom<'a>,
        element: ElementId,
        env: Env,
        envs: &mut [Env],
    ) -> Evaluated<()> {
        let children: Vec<Item> = self.layers.children(element).collect();
        self.local.budget.spend(children.len())?;
        let outer = match atom.way {
            Way::Following | Way::Preceding => ((env & atom.bits) >> atom.shift) as Value,
            _ => 0,
        };
        let place = |index: usize, env: Env| Place { item: children[index], env };
        match atom.way {
            Way::Following | Way::FollowingSibling => {
                let mut so_far = outer;
                for index in (0..children.len()).rev() {
                    let own = match atom.op.is_final(so_far) && !atom.op.is_ordered() {
                        true => 0,
                        false => self.ask(atom.of, place(index, envs[index]))?,
                    };
                    envs[index] |= self.filled(atom, so_far)?;
                    so_far = self.join(atom.op, own, so_far)?;
                }
            }
            Way::Preceding | Way::PrecedingSibling => {
                let mut so_far = outer;
                for (index, env) in envs.iter_mut().enumerate() {
                    let own = match atom.op.is_final(so_far) {
                        true => 0,
                        false => self.ask(atom.of, place(index, *env))?,
                    };
                    *env |= self.filled(atom, so_far)?;
                    so_far = self.join(atom.op, so_far, own)?;
                }
            }
            Way::Sibling(step) => self.among_siblings(atom, step, &children, envs)?,
            Way::Listed(step) => {
                if self.ask(atom.of, Place { item: Item::Element(element), env })? == 0 {
                    return Ok(());
                }
                let mut places = Vec::new();
                for (index, &child) in children.iter().enumerate() {
                    if self.passes(step, child) {
                        places.push((index, place(index, envs[index])));
                    }
                }
                self.keep_numbered(step, &mut places)?;
                for (index, _) in places {
                    envs[index] |= self.filled(atom, 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// The fields of a step with positions to siblings.
    fn among_siblings(
        &self,
        atom: &Atom<'a>,
        step: &'a Step,
        children: &[Item],
        envs: &mut [Env],
    ) -> Evaluated<()> {
        let is_reverse = step.axis.is_reverse();
        let all: Vec<(usize, Place)> = children
            .iter()
            .enumerate()
            .map(|(index, &item)| (index, Place { item, env: envs[index] }))
            .filter(|(_, place)| self.passes(step, place.item))
            .collect();
        let only = match step.predicates.as_slice() {
            [predicate] => super::positions::position(predicate),
            _ => None,
        };
        for (own, env) in envs.iter_mut().enumerate() {
            self.local.budget.spend(1)?;
            if let Some(position) = only {
                let after = all.partition_point(|&(index, _)| index <= own);
                let before = all.partition_point(|&(index, _)| index < own);
                let chosen = match (is_reverse, position) {
                    (false, Some(position)) => all.get(after + position - 1),
                    (false, None) => all[after..].last(),
                    (true, Some(position)) => before.checked_sub(position).map(|index| &all[index]),
                    (true, None) => all[..before].first(),
                };
                if let Some(&(_, place)) = chosen {
                    *env |= self.filled(atom, self.ask(atom.of, place)?)?;
                }
                continue;
            }
            self.local.budget.spend(all.len())?;
            let mut places: Vec<_> = match is_reverse {
                true => all.iter().rev().filter(|(index, _)| *index < own).copied().collect(),
                false => all.iter().filter(|(index, _)| *index > own).copied().collect(),
            };
            self.keep_numbered(step, &mut places)?;
            if is_reverse {
                places.reverse();
            }
            let mut so_far = 0;
            for (_, place) in places {
                so_far = self.join(atom.op, so_far, self.ask(atom.of, place)?)?;
            }
            *env |= self.filled(atom, so_far)?;
        }
        Ok(())
    }

    fn keep_numbered(&self, step: &'a Step, places: &mut Vec<(usize, Place)>) -> Evaluated<()> {
        for predicate in &step.predicates {
            let size = places.len();
            let mut position = 0;
            let mut failed = Ok(());
            places.retain(|&(_, node)| {
                position += 1;
                let at = crate::eval::Context { node, position, size };
                match crate::eval::Evaluator::bool(self, predicate, at) {
                    Ok(holds) => holds,
                    Err(error) => {
                        failed = Err(error);
                        false
                    }
                }
            });
            failed?;
        }
        Ok(())
    }
}
