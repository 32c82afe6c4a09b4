//! Where functions need not look: subtrees without any element that they can find something at.

use std::rc::Rc;

use super::program::{Func, FuncId, Kind, Program};
use crate::eval::Evaluated;
use crate::image::ElementId;
use crate::plan::local::Local;
use crate::plan::reach::Reached;
use crate::xpath::ir::{Axis, BoolExpr, NodeSet, Start, Step, StrExpr, Test};

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

    /// The elements of which a subtree must have one, so that a function finds something.
    fn needed(&self, id: FuncId) -> Option<Vec<Needed<'a>>> {
        let of_step = |step: &'a Step| match step.test {
            _ if step.axis == Axis::Attribute => None,
            Test::Name(name) | Test::AnyIn(name) => {
                Some(vec![bearer(&step.predicates).unwrap_or(Needed::Named(name))])
            }
            _ => bearer(&step.predicates).map(|needed| vec![needed]),
        };
        match self.func(id).kind {
            Kind::Pass(step, then) => of_step(step).or_else(|| self.needed(then)),
            Kind::Listed(step, then) if step.axis == Axis::Child => {
                of_step(step).or_else(|| self.needed(then))
            }
            Kind::Listed(_, then) => self.needed(then),
            Kind::Entry(number) => of_step(self.numberings[number].step?),
            Kind::Holds(_, then)
            | Kind::Inner(then)
            | Kind::Children(then)
            | Kind::Attributes(then)
            | Kind::Subtree(then) => self.needed(then),
            Kind::Where(test, then) => self.needed(test).or_else(|| self.needed(then)),
            Kind::Both(a, b) => {
                let mut all = self.needed(a)?;
                all.extend(self.needed(b)?);
                all.sort_unstable();
                all.dedup();
                Some(all)
            }
            _ => None,
        }
    }
}

/// Elements that postings list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Needed<'a> {
    Named(usize),
    /// Elements that bear an attribute.
    Bearing(usize, &'a str),
}

/// The attribute that predicates demand of an element.
fn bearer(predicates: &[BoolExpr]) -> Option<Needed<'_>> {
    fn demanded(predicate: &BoolExpr) -> Option<Needed<'_>> {
        match predicate {
            BoolExpr::And(a, b) => demanded(a).or_else(|| demanded(b)),
            BoolExpr::SetText(
                false,
                NodeSet::Path(Start::Context, steps),
                StrExpr::Const(text),
            ) => match steps.as_slice() {
                [Step { axis: Axis::Attribute, test: Test::Name(name), .. }] => {
                    Some(Needed::Bearing(*name, text))
                }
                _ => None,
            },
            _ => None,
        }
    }
    predicates.iter().find_map(demanded)
}

/// Where each function may find something; none where that is nearly everywhere.
pub fn of(
    program: &Program<'_>,
    local: Local<'_>,
    documents: usize,
) -> Evaluated<Vec<Option<Rc<Reached>>>> {
    let mut known: Vec<(Vec<Needed<'_>>, Option<Rc<Reached>>)> = Vec::new();
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

fn bearing(
    needed: &[Needed<'_>],
    local: Local<'_>,
    documents: usize,
) -> Evaluated<Option<Rc<Reached>>> {
    let store = local.store;
    let mut lists = Vec::new();
    for &needed in needed {
        match needed {
            Needed::Named(name) => {
                let names = local.names[name].ids().iter();
                lists.extend(names.map(|&name| store.elements_named(name)));
            }
            Needed::Bearing(name, text) => {
                local.budget.read(text)?;
                let Some(text) = store.strings().find(text) else { continue };
                let names = local.names[name].ids().iter();
                let pairs = names.filter_map(|&name| store.find_pair(name, text));
                lists.extend(pairs.map(|pair| store.elements_bearing(pair)));
            }
        }
    }
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
