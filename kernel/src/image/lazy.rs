//! What is made of an image when it is asked for.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

/// Something that is made when it is asked for the second time: the first question after a change of
/// the image may be the only one.
#[derive(Debug)]
pub struct Lazy<T> {
    is_asked: AtomicBool,
    made: OnceLock<Option<Box<T>>>,
}

impl<T> Default for Lazy<T> {
    fn default() -> Self {
        Lazy { is_asked: AtomicBool::new(false), made: OnceLock::new() }
    }
}

impl<T> Clone for Lazy<T> {
    fn clone(&self) -> Self {
        Lazy::default()
    }
}

impl<T> Lazy<T> {
    pub fn get(&self, make: impl FnOnce() -> Option<T>) -> Option<&T> {
        if !self.is_asked.swap(true, Ordering::Relaxed) {
            return None;
        }
        self.made.get_or_init(|| make().map(Box::new)).as_deref()
    }

    /// What has been made already.
    pub fn made(&self) -> Option<&T> {
        self.made.get().and_then(Option::as_deref)
    }
}
