//! Where functions need not look: subtrees without any element that they can find something at.

use std::rc::Rc;

use super::program::{Func, FuncId, Kind, Program};
use crate::eval::Evaluated;
use crate::image::ElementId;
use crate::plan::local::Local;
use crate::plan::reach::Reached;
use crate::xpath::ir::{Axis, Test};

impl<'a> Program<'a> {
    /// Whether a function of this kind may find something at a text, a comment or an instruction.
    pub fn may_be_leaves(&self, kind: &Kind<'a>) -> bool {
        let of = |id: FuncId| self.func(id).leaves;
        match *kind {
            Kind::Pass(step, then) => {
                let is_inner = matches!(step.test, Test::Any | Test::AnyIn(_) | Test::Name(_));
                !is_inner && of(then)
            }
            Kind::Entry(number) => {
                let step = self.numberings[number].step;
                step.is_none_or(|step| {
                    !matches!(step.test, Test::Any | Test::AnyIn(_) | Test::Name(_))
                })
            }
            Kind::Holds(_, then) | Kind::Inner(then) => of(then),
            Kind::Where(test, then) => of(test) && of(then),
            Kind::Both(a, b) => of(a) || of(b),
            Kind::Document | Kind::Attributes(_) => false,
            // Asked of an element, they ask their children.
            Kind::Children(of_child) | Kind::Subtree(of_child) => of(of_child),
            Kind::Listed(step, _) => {
                matches!(step.test, Test::Node | Test::Text | Test::Comment)
                    || matches!(step.test, Test::Instruction(_))
            }
            _ => true,
        }
    }

    /// The names of elements of which a subtree must have one, so that a function finds something.
    fn needed(&self, id: FuncId) -> Option<Vec<usize>> {
        match self.func(id).kind {
            Kind::Pass(step, then) => match step.test {
                Test::Name(name) | Test::AnyIn(name) if step.axis != Axis::Attribute => {
                    Some(vec![name])
                }
                _ => self.needed(then),
            },
            Kind::Listed(step, then) => match step.test {
                Test::Name(name) | Test::AnyIn(name) if step.axis == Axis::Child => {
                    Some(vec![name])
                }
                _ => self.needed(then),
            },
            Kind::Entry(number) => match self.numberings[number].step?.test {
                Test::Name(name) | Test::AnyIn(name) => Some(vec![name]),
                _ => None,
            },
            Kind::Holds(_, then)
            | Kind::Inner(then)
            | Kind::Children(then)
            | Kind::Attributes(then)
            | Kind::Subtree(then) => self.needed(then),
            Kind::Where(test, then) => self.needed(test).or_else(|| self.needed(then)),
            Kind::Both(a, b) => {
                let mut names = self.needed(a)?;
                names.extend(self.needed(b)?);
                names.sort_unstable();
                names.dedup();
                Some(names)
            }
            _ => None,
        }
    }
}

/// Where each function may find something; none where that is nearly everywhere.
pub fn of(
    program: &Program<'_>,
    local: Local<'_>,
    documents: usize,
) -> Evaluated<Vec<Option<Rc<Reached>>>> {
    let mut known: Vec<(Vec<usize>, Option<Rc<Reached>>)> = Vec::new();
    let mut reached = Vec::with_capacity(program.funcs.len());
    for Func { id, kind, .. } in &program.funcs {
        let names = match kind {
            Kind::Children(_) | Kind::Subtree(_) => program.needed(*id),
            _ => None,
        };
        let Some(names) = names else {
            reached.push(None);
            continue;
        };
        let found = match known.iter().find(|(others, _)| *others == names) {
            Some((_, found)) => found.clone(),
            None => {
                let found = bearing(&names, local, documents)?;
                known.push((names, found.clone()));
                found
            }
        };
        reached.push(found);
    }
    Ok(reached)
}

fn bearing(names: &[usize], local: Local<'_>, documents: usize) -> Evaluated<Option<Rc<Reached>>> {
    let ids = names.iter().flat_map(|&name| local.names[name].ids());
    let lists = ids.map(|&name| local.store.elements_named(name));
    let mut hits: Vec<ElementId> = Vec::new();
    for list in lists {
        if documents * 64 < hits.len() + list.len() {
            return Ok(None);
        }
        hits.extend_from_slice(list);
    }
    local.budget.spend(hits.len())?;
    Reached::from(local.store, &hits, local.budget).map(|reached| Some(Rc::new(reached)))
}
