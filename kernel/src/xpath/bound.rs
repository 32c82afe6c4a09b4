//! The names of an expression, looked up in one partition.

use super::ir::Wanted;
use crate::image::{DOCUMENT, NameId, Store};

/// The numbers that a wanted name has in a store: one for each prefix it was written with.
#[derive(Debug, Clone, Default)]
pub struct BoundName {
    ids: Vec<NameId>,
}

impl BoundName {
    /// Whether a name of the store is the wanted one.
    #[inline]
    pub fn matches(&self, name: NameId) -> bool {
        match self.ids.as_slice() {
            [] => false,
            [only] => *only == name,
            // They ascend, and `p:*` may have as many as there are names.
            several => several.binary_search(&name).is_ok(),
        }
    }

    /// All numbers; none when the partition never uses the name.
    pub fn ids(&self) -> &[NameId] {
        &self.ids
    }
}

/// Looks up every name of an expression.
pub fn bind(wanted: &[Wanted], store: &Store) -> Vec<BoundName> {
    wanted.iter().map(|wanted| bind_one(wanted, store)).collect()
}

fn bind_one((uri, local): &Wanted, store: &Store) -> BoundName {
    let strings = store.strings();
    let Some(uri) = strings.find(uri) else { return BoundName::default() };
    let local = match local {
        Some(local) => match strings.find(local) {
            Some(id) => Some(id),
            None => return BoundName::default(),
        },
        None => None,
    };
    let names = store.names().iter().enumerate();
    let same = names.filter(|&(id, name)| {
        id != DOCUMENT as usize && name.uri == uri && local.is_none_or(|local| name.local == local)
    });
    BoundName { ids: same.map(|(id, _)| id as NameId).collect() }
}
