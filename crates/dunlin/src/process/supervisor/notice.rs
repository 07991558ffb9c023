//! What a process lets its supervisor know without waiting.

use std::fmt;

/// Posts one event.
pub(super) struct Notice(Box<dyn FnOnce() + Send + Sync>);

impl Notice {
    pub(super) fn new(post: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Box::new(post))
    }

    pub(super) fn post(self) {
        (self.0)();
    }
}

impl fmt::Debug for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Notice")
    }
}

/// Posts its event when it is dropped: by a process that ends, in whatever way.
pub(super) struct AtEnd(Option<Notice>);

impl AtEnd {
    pub(super) fn new(notice: Notice) -> Self {
        Self(Some(notice))
    }
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(notice) = self.0.take() {
            notice.post();
        }
    }
}
