//! Where a person is in `top`: the box, the line, what is open, what was asked. Turns keys into acts and touches nothing
//! itself, so that every key can be tested without a terminal.

use postrider::inspect::DeadFilter;
use ratatui::crossterm::event::{Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

use super::snapshot::Picture;

/// The boxes, in the order of Tab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pane {
    Sinks,
    Dead,
    Lanes,
    Relays,
}

impl Pane {
    pub(super) const ALL: [Self; 4] = [Self::Sinks, Self::Dead, Self::Lanes, Self::Relays];

    pub(super) fn index(self) -> usize {
        Self::ALL.iter().position(|pane| *pane == self).unwrap_or(0)
    }

    fn turned(self, by: usize) -> Self {
        Self::ALL[(self.index() + by) % Self::ALL.len()]
    }

    /// What an empty box says.
    pub(super) fn empty_words(self, picture: &Picture) -> &'static str {
        match self {
            _ if picture.seen.is_none() => "",
            Self::Sinks => "no sinks",
            Self::Dead => "no dead letters",
            Self::Lanes => "no lane waits",
            Self::Relays => "no relay has reported",
        }
    }

    pub(super) fn rows(self, picture: &Picture) -> usize {
        match self {
            Self::Sinks => picture.sinks.len(),
            Self::Dead => picture.groups.len(),
            Self::Lanes => picture.lanes.len(),
            Self::Relays => picture.relays.len(),
        }
    }
}

/// What lies over the boxes.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Over {
    Nothing,
    Help,
    Details,
    /// Redrive so many?
    Confirm(Box<DeadFilter>, u64),
}

/// What a key asks for.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Act {
    Nothing,
    Quit,
    Pause(String, bool),
    Count(Box<DeadFilter>),
    Redrive(Box<DeadFilter>, u64),
}

/// Where a person is.
pub(super) struct View {
    pub(super) pane: Pane,
    /// The selected line of each box.
    selected: [usize; Pane::ALL.len()],
    pub(super) over: Over,
    /// What was last done, in the footer until the next key.
    pub(super) words: Option<String>,
    pub(super) colour: bool,
}

impl View {
    pub(super) fn new(colour: bool) -> Self {
        Self { pane: Pane::Sinks, selected: [0; Pane::ALL.len()], over: Over::Nothing, words: None, colour }
    }

    /// The selected line of a box; `None` if it is empty.
    pub(super) fn selected(&self, pane: Pane, picture: &Picture) -> Option<usize> {
        let rows = pane.rows(picture);
        (rows > 0).then(|| self.selected[pane.index()].min(rows - 1))
    }

    /// How many dead letters there are was found out.
    pub(super) fn ask(&mut self, which: Box<DeadFilter>, count: u64) {
        if count == 0 {
            self.said("nothing is dead there: nothing to redrive".to_owned());
        } else {
            self.words = None;
            self.over = Over::Confirm(which, count);
        }
    }

    pub(super) fn said(&mut self, words: String) {
        self.words = Some(words);
    }

    pub(super) fn press(&mut self, event: &Event, picture: &Picture) -> Act {
        let Event::Key(key) = event else { return Act::Nothing };
        if key.kind != KeyEventKind::Press {
            return Act::Nothing;
        }
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Act::Quit;
        }
        match std::mem::replace(&mut self.over, Over::Nothing) {
            Over::Confirm(which, count) => self.answer(key, which, count),
            Over::Help | Over::Details if key.code == KeyCode::Char('q') => Act::Quit,
            // Any other key closes what lies over the boxes.
            Over::Help | Over::Details => Act::Nothing,
            Over::Nothing => self.command(key, picture),
        }
    }

    fn answer(&mut self, key: &KeyEvent, which: Box<DeadFilter>, count: u64) -> Act {
        if matches!(key.code, KeyCode::Char('y' | 'Y')) {
            self.said("redriving …".to_owned());
            return Act::Redrive(which, count);
        }
        self.said("nothing was changed".to_owned());
        Act::Nothing
    }

    fn command(&mut self, key: &KeyEvent, picture: &Picture) -> Act {
        self.words = None;
        match key.code {
            KeyCode::Char('q') | KeyCode::Esc => return Act::Quit,
            KeyCode::Tab | KeyCode::Right | KeyCode::Char('l') => self.pane = self.pane.turned(1),
            KeyCode::BackTab | KeyCode::Left | KeyCode::Char('h') => self.pane = self.pane.turned(Pane::ALL.len() - 1),
            KeyCode::Down | KeyCode::Char('j') => self.step(picture, 1),
            KeyCode::Up | KeyCode::Char('k') => self.step(picture, -1),
            KeyCode::Home | KeyCode::Char('g') => self.selected[self.pane.index()] = 0,
            KeyCode::End | KeyCode::Char('G') => {
                self.selected[self.pane.index()] = self.pane.rows(picture).saturating_sub(1);
            }
            KeyCode::Char('?') => self.over = Over::Help,
            KeyCode::Enter if self.selected(self.pane, picture).is_some() => self.over = Over::Details,
            KeyCode::Char('p') => return self.pause(picture),
            KeyCode::Char('r') => return self.redrive(picture),
            _ => {}
        }
        Act::Nothing
    }

    fn step(&mut self, picture: &Picture, by: isize) {
        if let Some(line) = self.selected(self.pane, picture) {
            let last = self.pane.rows(picture) - 1;
            self.selected[self.pane.index()] = line.saturating_add_signed(by).min(last);
        }
    }

    /// Pauses the selected sink, or resumes it. In another box nobody sees which sink that would be.
    fn pause(&mut self, picture: &Picture) -> Act {
        let sink = (self.pane == Pane::Sinks).then(|| self.selected(Pane::Sinks, picture)).flatten();
        let Some(sink) = sink.and_then(|line| picture.sinks.get(line)) else {
            self.said("select a sink first: Tab".to_owned());
            return Act::Nothing;
        };
        Act::Pause(sink.seen.status.sink.clone(), !sink.seen.status.paused)
    }

    /// Of the selected sink, or of the selected group. What dies from now on is not meant.
    fn redrive(&mut self, picture: &Picture) -> Act {
        let died_to = Some(picture.now);
        let which = match self.pane {
            Pane::Sinks => self
                .selected(Pane::Sinks, picture)
                .and_then(|line| picture.sinks.get(line))
                .map(|sink| DeadFilter { sink: Some(sink.seen.status.sink.clone()), died_to, ..DeadFilter::default() }),
            Pane::Dead => {
                self.selected(Pane::Dead, picture).and_then(|line| picture.groups.get(line)).map(|group| DeadFilter {
                    sink: Some(group.sink.clone()),
                    topic: Some(group.topic.clone()),
                    reason: Some(group.reason),
                    error_code: group.error_code.clone(),
                    died_to,
                    ..DeadFilter::default()
                })
            }
            Pane::Lanes | Pane::Relays => None,
        };
        let Some(which) = which else {
            self.said("select a sink or a group of dead letters first: Tab".to_owned());
            return Act::Nothing;
        };
        Act::Count(Box::new(which))
    }
}

#[cfg(test)]
mod tests {
    use super::super::draw::tests::picture;
    use super::*;

    fn key(code: KeyCode) -> Event {
        Event::Key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn press(view: &mut View, keys: &str) -> Act {
        let picture = picture();
        let mut act = Act::Nothing;
        for c in keys.chars() {
            let code = match c {
                '\t' => KeyCode::Tab,
                '\n' => KeyCode::Enter,
                c => KeyCode::Char(c),
            };
            act = view.press(&key(code), &picture);
        }
        act
    }

    #[test]
    fn lines_and_boxes_are_selected_and_never_left() {
        let (mut view, picture) = (View::new(false), picture());
        press(&mut view, "jjjjjjjjkj");
        assert_eq!(view.selected(Pane::Sinks, &picture), Some(picture.sinks.len() - 1));
        press(&mut view, "g");
        assert_eq!(view.selected(Pane::Sinks, &picture), Some(0));
        press(&mut view, "\tG");
        assert_eq!((view.pane, view.selected(Pane::Dead, &picture)), (Pane::Dead, Some(picture.groups.len() - 1)));
        press(&mut view, "\t\t\t");
        assert_eq!(view.pane, Pane::Sinks);
        let empty = Picture::new(String::new());
        assert_eq!(view.selected(Pane::Sinks, &empty), None);
        assert_eq!(view.press(&key(KeyCode::Enter), &empty), Act::Nothing);
        assert_eq!(view.over, Over::Nothing, "there is nothing to show");
    }

    #[test]
    fn a_sink_is_paused_and_a_paused_one_resumed() {
        assert_eq!(press(&mut View::new(false), "p"), Act::Pause("audit".to_owned(), false));
        assert_eq!(press(&mut View::new(false), "jp"), Act::Pause("orders".to_owned(), true));
        assert_eq!(press(&mut View::new(false), "\tp"), Act::Nothing);
    }

    #[test]
    fn a_redrive_is_counted_then_asked_about_then_done() {
        let mut view = View::new(false);
        let Act::Count(which) = press(&mut view, "\tr") else { panic!("it does not count first") };
        assert_eq!((which.sink.as_deref(), which.error_code.as_deref()), (Some("orders"), Some("HTTP_503")));
        assert!(which.died_to.is_some(), "what dies later is not meant");
        view.ask(which.clone(), 12);
        assert_eq!(press(&mut view, "n"), Act::Nothing);
        assert_eq!(view.over, Over::Nothing);
        view.ask(which.clone(), 12);
        assert_eq!(press(&mut view, "\n"), Act::Nothing, "Enter is not yes");
        view.ask(which.clone(), 12);
        assert_eq!(press(&mut view, "y"), Act::Redrive(which.clone(), 12));
        view.ask(which, 0);
        assert_eq!(view.over, Over::Nothing, "nothing to ask about");
        assert_eq!(press(&mut View::new(false), "\t\tr"), Act::Nothing);
    }

    #[test]
    fn quitting_works_from_everywhere() {
        for keys in ["q", "?q", "\nq", "\tq"] {
            assert_eq!(press(&mut View::new(false), keys), Act::Quit, "{keys:?}");
        }
        let ctrl_c = Event::Key(KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL));
        let mut view = View::new(false);
        view.ask(Box::default(), 1);
        assert_eq!(view.press(&ctrl_c, &picture()), Act::Quit);
        assert_eq!(view.press(&Event::Resize(1, 1), &picture()), Act::Nothing);
    }
}
