//! Comments that are too wide and functions that are too long.

use syn::spanned::Spanned;
use syn::visit::{self, Visit};

/// The maximum width of a line with only a comment.
pub(crate) const COMMENT_COLUMNS: usize = 110;
/// The maximum length of a function, from its first line to its closing brace.
pub(crate) const FUNCTION_LINES: usize = 120;

/// The numbers of lines that hold only a comment and are too wide. A table or a link in a doc comment cannot
/// be broken, so it does not count.
pub(crate) fn wide_comments(text: &str) -> impl Iterator<Item = usize> + '_ {
    let wide = |line: &str| line.chars().count() > COMMENT_COLUMNS;
    let fixed = |comment: &str| comment.trim_start_matches(['/', '!']).trim_start().starts_with(['|', '[']);
    text.lines().enumerate().filter_map(move |(at, line)| {
        let comment = line.trim_start();
        (comment.starts_with("//") && wide(line) && !fixed(comment)).then_some(at + 1)
    })
}

/// The functions that are too long, with their lines.
pub(crate) fn long_functions(file: &syn::File) -> Vec<(String, usize)> {
    let mut found = Functions(vec![]);
    found.visit_file(file);
    found.0
}

struct Functions(Vec<(String, usize)>);

impl Functions {
    fn add(&mut self, name: &syn::Ident, signature: &syn::Signature, block: &syn::Block) {
        let lines = block.span().end().line - signature.span().start().line + 1;
        if lines > FUNCTION_LINES {
            self.0.push((name.to_string(), lines));
        }
    }
}

impl<'ast> Visit<'ast> for Functions {
    fn visit_item_fn(&mut self, function: &'ast syn::ItemFn) {
        self.add(&function.sig.ident, &function.sig, &function.block);
        visit::visit_item_fn(self, function);
    }

    fn visit_impl_item_fn(&mut self, function: &'ast syn::ImplItemFn) {
        self.add(&function.sig.ident, &function.sig, &function.block);
        visit::visit_impl_item_fn(self, function);
    }

    fn visit_trait_item_fn(&mut self, function: &'ast syn::TraitItemFn) {
        if let Some(block) = &function.default {
            self.add(&function.sig.ident, &function.sig, block);
        }
        visit::visit_trait_item_fn(self, function);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comment_of_more_than_110_columns_is_wide() {
        let (fits, wide) = (format!("    // {}", "x".repeat(103)), format!("    // {}", "x".repeat(104)));
        let text = format!("{fits}\n{wide}\nlet code = 1; // {}\n/// | {} |", "x".repeat(120), "x".repeat(120));
        assert_eq!(wide_comments(&text).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn a_function_of_more_than_120_lines_is_long() {
        let function = |name: &str, lines: usize| format!("fn {name}() {{\n{}}}\n", "f();\n".repeat(lines - 2));
        let text = format!("{} impl X {{ {} }}", function("fits", 120), function("long", 121));
        assert_eq!(long_functions(&syn::parse_file(&text).unwrap()), [("long".to_owned(), 121)]);
    }
}
