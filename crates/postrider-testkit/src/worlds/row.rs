//! Rows and table locks as a transaction sees them: what is committed, what one open transaction has written, and who has what
//! locked. Part of `state`. They know nothing of the outbox.

use super::state::Set;

/// A row that one transaction at a time may have locked, and changed without a commit.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Row<T> {
    /// What everybody sees.
    pub committed: Option<T>,
    /// What only its owner sees.
    pub dirty: Option<Option<T>>,
    /// Number of the session that has it locked, from 1.
    pub owner: u8,
}

impl<T> Default for Row<T> {
    fn default() -> Self {
        Self { committed: None, dirty: None, owner: 0 }
    }
}

impl<T: Copy> Row<T> {
    /// As this session sees it.
    pub fn seen(&self, session: usize) -> Option<T> {
        match self.dirty {
            Some(dirty) if self.mine(session) => dirty,
            _ => self.committed,
        }
    }

    /// Whether this session has it locked.
    pub fn mine(&self, session: usize) -> bool {
        usize::from(self.owner) == session + 1
    }

    /// Whether another session has it locked.
    pub fn taken(&self, session: usize) -> bool {
        self.owner != 0 && !self.mine(session)
    }

    /// Locks it.
    pub fn lock(&mut self, session: usize) {
        self.owner = number(session);
    }

    /// Changes or, with `None`, deletes it.
    pub fn write(&mut self, session: usize, value: Option<T>) {
        self.lock(session);
        self.dirty = Some(value);
    }

    /// Ends this session's transaction. Whether others now see something, if it is something else.
    pub(super) fn end(&mut self, session: usize, commit: bool) -> Option<bool> {
        if !self.mine(session) {
            return None;
        }
        self.owner = 0;
        let changed = self.dirty.take().filter(|_| commit)?;
        self.committed = changed;
        Some(changed.is_some())
    }
}

/// A session as an owner is written.
pub fn number(session: usize) -> u8 {
    u8::try_from(session + 1).unwrap_or(u8::MAX)
}

/// A session as a member of a set.
pub fn bit(session: usize) -> Set {
    1 << session
}

/// A table lock that many share or one has alone. Whoever has begun to wait for it comes before all that come later.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct TableLock {
    /// Who shares it.
    pub shared: Set,
    /// Who has it alone.
    pub alone: Set,
    /// Who waits to have it alone.
    pub waiting: Set,
}

impl TableLock {
    /// Who keeps this session from sharing it.
    pub fn against_sharing(&self, session: usize) -> Set {
        (self.alone | self.waiting) & !bit(session)
    }

    /// Who keeps this session from having it alone.
    pub fn against_alone(&self, session: usize) -> Set {
        (self.alone | self.shared) & !bit(session)
    }

    /// Takes it alone (true), begins to wait for it (false), or fails with whom it waits for.
    pub fn take_alone(&mut self, session: usize) -> Result<bool, Set> {
        let against = self.against_alone(session);
        if against == 0 {
            self.waiting &= !bit(session);
            self.alone |= bit(session);
            return Ok(true);
        }
        if self.waiting & bit(session) != 0 {
            return Err(against);
        }
        self.waiting |= bit(session);
        Ok(false)
    }
}
