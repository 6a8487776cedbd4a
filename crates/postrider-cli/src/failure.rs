//! A failed command, in words for a person or as JSON for a program, always on stderr. Made from the library's errors
//! and by the commands; printed by `main` alone. It must never hold the database URL, which may hold a password.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use postrider::Error;
use serde::Serialize;

use crate::exit_code::ExitCode;
use crate::output::{Paint, paint, printable};

pub(crate) type Result<T> = std::result::Result<T, Failure>;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) enum Failure {
    Report(Box<Report>),
    /// Nothing more to say: help was shown instead, or whoever read our output has had enough (`postrider list | head`).
    Silent(ExitCode),
}

#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) code: ExitCode,
    pub(crate) message: String,
    /// What did happen, for people; programs have `progress`.
    pub(crate) note: Option<String>,
    pub(crate) hint: Option<String>,
    pub(crate) progress: Option<Progress>,
}

/// How far an input of many messages was taken before it failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) struct Progress {
    /// The line that is wrong, if it is one line's fault.
    pub(crate) line: Option<u64>,
    pub(crate) enqueued: u64,
    pub(crate) duplicates: u64,
    /// Where to go on: everything before this line is committed, nothing from it on is.
    pub(crate) next_line: u64,
}

impl Failure {
    pub(crate) fn new(code: ExitCode, message: impl Into<String>) -> Self {
        Self::Report(Box::new(Report { code, message: message.into(), note: None, hint: None, progress: None }))
    }

    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self::new(ExitCode::Usage, message)
    }

    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        if let Self::Report(report) = &mut self {
            report.hint = Some(hint.into());
        }
        self
    }

    pub(crate) fn progress(mut self, progress: Progress, note: String) -> Self {
        if let Self::Report(report) = &mut self {
            report.note = Some(note);
            report.progress = Some(progress);
        }
        self
    }

    /// Says which of several databases it is about.
    pub(crate) fn of_database(mut self, name: &str) -> Self {
        if let Self::Report(report) = &mut self {
            report.message = format!("database {name:?}: {}", report.message);
        }
        self
    }

    /// What went wrong with stdout.
    pub(crate) fn output(error: &io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            Self::Silent(ExitCode::Ok)
        } else {
            Self::new(ExitCode::Failure, format!("cannot write the output: {error}"))
        }
    }

    pub(crate) fn code(&self) -> ExitCode {
        match self {
            Self::Report(report) => report.code,
            Self::Silent(code) => *code,
        }
    }

    /// Says it on stderr. If that is closed too, nobody is listening.
    pub(crate) fn print(&self, json: bool, colour: bool) {
        let Self::Report(report) = self else { return };
        let text = if json { report.json() } else { report.text(colour) };
        drop(io::stderr().lock().write_all(text.as_bytes()));
    }
}

impl Report {
    fn text(&self, colour: bool) -> String {
        let mut text = format!("{} {}\n", paint(colour, Paint::Bad, "error:"), printable(&self.message));
        for (label, line) in [("note:", &self.note), ("hint:", &self.hint)] {
            if let Some(line) = line {
                let _ = writeln!(text, "{} {}", paint(colour, Paint::Strong, label), printable(line));
            }
        }
        text
    }

    fn json(&self) -> String {
        #[derive(Serialize)]
        struct Document<'a> {
            error: Body<'a>,
        }
        #[derive(Serialize)]
        struct Body<'a> {
            code: &'static str,
            message: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            hint: Option<&'a str>,
            #[serde(flatten)]
            progress: Option<Progress>,
        }
        let error = Body {
            code: self.code.word(),
            message: &self.message,
            hint: self.hint.as_deref(),
            progress: self.progress,
        };
        // Text and numbers alone: there is nothing here that cannot be JSON.
        serde_json::to_string(&Document { error }).map(|line| line + "\n").unwrap_or_default()
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Error::from(error).into()
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let (code, hint) = ExitCode::of(&error);
        let failure = Self::new(code, error.in_short());
        match hint {
            Some(hint) => failure.hint(hint),
            None => failure,
        }
    }
}
