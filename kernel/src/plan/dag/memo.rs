//! Results by function, element and surroundings.

use hashbrown::HashMap;

use super::program::{Env, FuncId};
use super::values::Value;

/// A table of all elements pays where so many elements are for each document that is asked about.
const DENSE: usize = 64;

/// What has been worked out.
pub struct Memo {
    /// One above the result for each element, by function, where its surroundings come to nothing.
    plain: Vec<Vec<Value>>,
    /// Which of these are the same whatever the surroundings are, by bits.
    free: Vec<Vec<u64>>,
    elements: usize,
    other: HashMap<(FuncId, u32, Env), (Value, bool)>,
}

impl Memo {
    pub fn new(functions: usize, elements: usize, documents: usize) -> Self {
        let elements = if elements <= documents * DENSE { elements } else { 0 };
        let (plain, free) = (vec![Vec::new(); functions], vec![Vec::new(); functions]);
        Memo { plain, free, elements, other: HashMap::new() }
    }

    /// A result, and whether the surroundings were looked at for it.
    #[inline]
    pub fn get(&self, func: FuncId, element: usize, env: Env) -> Option<(Value, bool)> {
        let free = &self.free[func as usize];
        let is_free =
            free.get(element / 64).is_some_and(|bits: &u64| bits >> (element % 64) & 1 == 1);
        if is_free || env == 0 && self.elements != 0 {
            let known = *self.plain[func as usize].get(element)?;
            return Some((known.checked_sub(1)?, !is_free));
        }
        self.other.get(&(func, element as u32, env)).copied()
    }

    /// `is_seen` says whether the surroundings were looked at.
    pub fn insert(
        &mut self,
        func: FuncId,
        element: usize,
        (env, is_seen): (Env, bool),
        value: Value,
    ) {
        if (env != 0 && is_seen) || self.elements == 0 {
            self.other.insert((func, element as u32, env), (value, is_seen));
            return;
        }
        let table = &mut self.plain[func as usize];
        if table.is_empty() {
            *table = vec![0; self.elements];
        }
        table[element] = value + 1;
        if !is_seen {
            let free = &mut self.free[func as usize];
            if free.is_empty() {
                *free = vec![0; self.elements.div_ceil(64)];
            }
            free[element / 64] |= 1 << (element % 64);
        }
    }
}
