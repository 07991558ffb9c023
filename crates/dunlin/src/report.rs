//! Prints the error of a `main` or a test that returned one: its text and its causes.

use std::cell::Cell;
use std::error::Error;
use std::fmt;
use std::process::{ExitCode, Termination};

/// The value that `main`, or a test, has returned: `(&&&&Outcome::new(..)).report()` is the exit code.
/// (Autoref: the first of the traits that fits.)
pub struct Outcome<T>(Cell<Option<T>>);

impl<T> Outcome<T> {
    /// Wraps an outcome.
    pub fn new(outcome: T) -> Self {
        Self(Cell::new(Some(outcome)))
    }

    fn take(&self) -> T {
        self.0.take().expect("an outcome is reported once")
    }
}

/// An error: its text, and the texts of its causes.
pub trait ReportError {
    /// Prints the error, if there is one.
    fn report(&self) -> ExitCode;
}

impl<T: Termination, E: Error> ReportError for &&&Outcome<Result<T, E>> {
    fn report(&self) -> ExitCode {
        match self.take() {
            Ok(output) => output.report(),
            Err(error) => failure(&error.to_string(), error.source()),
        }
    }
}

/// An error in a box, which is no error itself.
pub trait ReportBoxed {
    /// Prints the error, if there is one.
    fn report(&self) -> ExitCode;
}

impl<T: Termination, E: Error + ?Sized> ReportBoxed for &&Outcome<Result<T, Box<E>>> {
    fn report(&self) -> ExitCode {
        match self.take() {
            Ok(output) => output.report(),
            Err(error) => failure(&error.to_string(), error.source()),
        }
    }
}

/// A text in the place of an error.
pub trait ReportText {
    /// Prints the text, if there is one.
    fn report(&self) -> ExitCode;
}

impl<T: Termination> ReportText for &Outcome<Result<T, String>> {
    fn report(&self) -> ExitCode {
        match self.take() {
            Ok(output) => output.report(),
            Err(text) => failure(&text, None),
        }
    }
}

impl<T: Termination> ReportText for &Outcome<Result<T, &str>> {
    fn report(&self) -> ExitCode {
        match self.take() {
            Ok(output) => output.report(),
            Err(text) => failure(text, None),
        }
    }
}

/// Any other program ends as it does without dunlin.
pub trait ReportOther {
    /// What `main`, or the test, returns.
    type Output;

    /// Leaves it to the standard library.
    fn report(&self) -> ExitCode
    where
        Self::Output: Termination;
}

impl<T> ReportOther for Outcome<T> {
    type Output = T;

    fn report(&self) -> ExitCode
    where
        T: Termination,
    {
        self.take().report()
    }
}

/// Prints the text, and the causes behind it.
pub(crate) fn failure(text: &str, cause: Option<&(dyn Error + 'static)>) -> ExitCode {
    // The standard library prints it, so that a test's output is captured, and a failed write does not panic.
    Err::<(), _>(Told(told(text, cause))).report()
}

/// What is printed behind "Error: ".
struct Told(String);

impl fmt::Debug for Told {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The error and its causes, a line each. Many errors end with the text of their cause: that one is not
/// repeated.
fn told(text: &str, cause: Option<&(dyn Error + 'static)>) -> String {
    let mut told = text.to_owned();
    let mut last = text.to_owned();
    for cause in std::iter::successors(cause, |&cause| cause.source()) {
        let text = cause.to_string();
        if !last.ends_with(&text) {
            told += &format!("\n  caused by: {text}");
            last = text;
        }
    }
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{RecvError, Why};

    #[derive(Debug)]
    struct Broken(Option<Box<Self>>, &'static str);

    impl std::fmt::Display for Broken {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.1)
        }
    }

    impl Error for Broken {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            self.0.as_deref().map(|cause| cause as _)
        }
    }

    #[test]
    fn causes_are_printed_unless_the_text_has_them() {
        let cause = Broken(Some(Box::new(Broken(None, "no such file"))), "cannot read: no such file");
        let error = Broken(Some(Box::new(cause)), "no market");
        let expected = "no market\n  caused by: cannot read: no such file";
        assert_eq!(told(&error.to_string(), error.source()), expected);

        // A text that only mentions the cause does not print it.
        let error = Broken(Some(Box::new(Broken(None, "7"))), "cannot read line 7 of 9");
        assert_eq!(told(&error.to_string(), error.source()), "cannot read line 7 of 9\n  caused by: 7");

        let error = crate::Error::Recv(RecvError::Closed);
        assert_eq!(told(&error.to_string(), error.source()), error.to_string());
    }

    #[test]
    fn every_kind_of_outcome_is_reported() {
        let failed = format!("{:?}", ExitCode::FAILURE);
        macro_rules! code {
            ($outcome:expr) => {
                format!("{:?}", (&&&&Outcome::new($outcome)).report())
            };
        }
        assert_eq!(code!(Err::<(), crate::Error>(crate::Error::NotTaken(Why::Closed))), failed);
        assert_eq!(code!(Err::<(), Box<dyn Error>>("x".into())), failed);
        assert_eq!(code!(Err::<(), Box<dyn Error + Send + Sync>>("x".into())), failed);
        assert_eq!(code!(Err::<(), String>("x".into())), failed);
        assert_eq!(code!(Err::<(), &str>("x")), failed);
        // A type with `Debug` only.
        assert_eq!(code!(Err::<(), u8>(1)), failed);
        assert_eq!(code!(Ok::<ExitCode, crate::Error>(ExitCode::from(7))), format!("{:?}", ExitCode::from(7)));
        assert_eq!(code!(()), format!("{:?}", ExitCode::SUCCESS));
    }
}
