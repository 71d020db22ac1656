//! What a server's defragmentation needs: every allocation of a value, one after the other.

/// Moves allocations to where the allocator prefers them. Their contents stay the same.
pub trait Relocate {
    /// Moves the memory of a list.
    fn list<T>(&mut self, list: &mut Vec<T>);
    /// Moves a slice.
    fn slice<T>(&mut self, slice: &mut Box<[T]>);
    /// Moves a string.
    fn text(&mut self, text: &mut Box<str>);
    /// Moves a single value.
    fn value<T>(&mut self, value: &mut Box<T>);
    /// Whether to stop here and continue later.
    fn should_stop(&mut self) -> bool;
}

/// A walk through the allocations of one value, which may be interrupted.
pub(crate) struct Walk<'a, R> {
    by: &'a mut R,
    from: usize,
    at: usize,
    stopped: bool,
}

impl<'a, R: Relocate> Walk<'a, R> {
    /// Skips the first `from` allocations.
    pub(crate) fn new(by: &'a mut R, from: usize) -> Self {
        Self {
            by,
            from,
            at: 0,
            stopped: false,
        }
    }

    /// Relocates the next allocation.
    pub(crate) fn allocation(&mut self, relocate: impl FnOnce(&mut R)) {
        if self.stopped {
            return;
        }
        if self.at >= self.from {
            relocate(self.by);
            self.stopped = self.by.should_stop();
        }
        self.at += 1;
    }

    /// Where to continue, if the walk was interrupted.
    pub(crate) fn rest(self) -> Option<usize> {
        self.stopped.then_some(self.at)
    }
}
