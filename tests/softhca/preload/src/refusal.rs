//! A command that the kernel refuses because a test asks for it. Otherwise a driver's reaction to a
//! refusal would hardly ever be seen. Commands that destroy are not refused, because a driver may
//! rely on their success.

use softhca::hca::Errno;

/// Which command is refused next, once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The number of the `write` command, plus 0x80000000 for extended ones; `None` for any
    /// command.
    pub(crate) command: Option<u32>,
    /// How many of them are done before.
    pub(crate) skip: u32,
    pub(crate) errno: Errno,
}

/// DEALLOC_PD, DEREG_MR, DESTROY_CQ, DESTROY_QP; extended: DESTROY_FLOW, DESTROY_WQ,
/// DESTROY_RWQ_IND_TBL (mlx5.md 3.4).
const DESTROYERS: [u32; 7] = [4, 13, 20, 27, 0x8000_0033, 0x8000_0036, 0x8000_0038];

impl Refusal {
    /// The errno with which the kernel refuses `command`, if it does. Clears `waiting` after a
    /// refusal.
    pub(crate) fn of(waiting: &mut Option<Self>, command: u32) -> Option<Errno> {
        let refusal = waiting.as_mut()?;
        let is_meant = refusal.command.map_or(!DESTROYERS.contains(&command), |meant| meant == command);
        if !is_meant {
            return None;
        }
        if refusal.skip > 0 {
            refusal.skip -= 1;
            return None;
        }
        waiting.take().map(|refusal| refusal.errno)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERRNO: Errno = Errno(libc::EINVAL);

    #[test]
    fn one_command_is_refused_after_as_many_as_are_said() {
        let mut waiting = Some(Refusal { command: Some(26), skip: 1, errno: ERRNO });
        let answers: Vec<_> = [26, 24, 26, 26].into_iter().map(|command| Refusal::of(&mut waiting, command)).collect();
        assert_eq!(answers, [None, None, Some(ERRNO), None]);
    }

    #[test]
    fn whichever_command_comes_is_refused_but_none_that_destroys() {
        let mut waiting = Some(Refusal { command: None, skip: 0, errno: ERRNO });
        assert_eq!(Refusal::of(&mut waiting, 27), None);
        assert_eq!(Refusal::of(&mut waiting, 24), Some(ERRNO));
        assert_eq!(Refusal::of(&mut waiting, 24), None);
    }
}
