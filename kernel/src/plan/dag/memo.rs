//! Results by function, element and surroundings.

use hashbrown::HashMap;

use super::program::{Env, FuncId};
use super::values::Value;

/// A table of all elements pays where so many elements are for each document that is asked about.
const DENSE: usize = 64;

/// What has been worked out.
pub struct Memo {
    /// One above the result for each element, by function, where its surroundings do not matter.
    plain: Vec<Vec<Value>>,
    elements: usize,
    other: HashMap<(FuncId, u32, Env), Value>,
}

impl Memo {
    pub fn new(functions: usize, elements: usize, documents: usize) -> Self {
        let elements = if elements <= documents * DENSE { elements } else { 0 };
        Memo { plain: vec![Vec::new(); functions], elements, other: HashMap::new() }
    }

    #[inline]
    pub fn get(&self, func: FuncId, element: usize, env: Env) -> Option<Value> {
        if env == 0 && self.elements != 0 {
            let known = *self.plain[func as usize].get(element)?;
            return known.checked_sub(1);
        }
        self.other.get(&(func, element as u32, env)).copied()
    }

    pub fn insert(&mut self, func: FuncId, element: usize, env: Env, value: Value) {
        if env == 0 && self.elements != 0 {
            let table = &mut self.plain[func as usize];
            if table.is_empty() {
                *table = vec![0; self.elements];
            }
            table[element] = value + 1;
            return;
        }
        self.other.insert((func, element as u32, env), value);
    }
}
