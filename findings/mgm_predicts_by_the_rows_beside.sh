#!/usr/bin/env bash
# mgm 1.2-16 (R): predictions of a row depend on the rows beside it, and its sampler draws counts of another law than it fits.
#
# predict() standardises the Gaussian columns of the rows that it is given by their own means and deviations, not by those
# of the rows learned from: a thousand added to a column changes no prediction, some of the rows are predicted otherwise
# alone than among all, and where mgm() was told scale = FALSE the coefficients of the columns meet standardised ones. The
# page of predict() does not say so. mgmsampler() draws a Poisson column with the linear predictor as its rate, mgm() fits
# the log of the rate, and both name the joint law of Yang and others (2014), whose link is the log. Nothing warns.
#
# Needs R. mgm is taken from the library where it is installed, else from CRAN into a temporary folder. (From R 4.2 on
# mgmsampler() refuses a matrix as the interaction of a pair, for its class has two names; the class is set to one here.)
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export R_LIBS="${R_LIBS:-}${R_LIBS:+:}$folder"
cat > "$folder/predict.R" <<'R'
if (!requireNamespace("mgm", quietly = TRUE)) install.packages("mgm", lib = Sys.getenv("FOLDER"), repos = "https://cran.r-project.org")
suppressPackageStartupMessages(library(mgm))
cat("R", as.character(getRversion()), "mgm", as.character(packageVersion("mgm")), "\n")
set.seed(1)
height <- rnorm(300, 170, 10)
x <- cbind(height, 0.08 * (height - 170) + rnorm(300), rbinom(300, 1, 0.5))
fit <- function(...) mgm(x, c("g", "g", "c"), c(1, 1, 2), lambdaSel = "EBIC", pbar = FALSE, signInfo = FALSE, ...)
by_all <- predict(fit(), x)$predicted[, 2]

moved <- x
moved[, 1] <- moved[, 1] + 1000
stopifnot(isTRUE(all.equal(predict(fit(), moved)$predicted[, 2], by_all)))

tall <- order(-height)[1:50]
among_tall <- predict(fit(), x[tall, ])$predicted[, 2]
cat("the tallest row among all rows and among the tall ones:", by_all[tall[1]], among_tall[1], "\n")
stopifnot(abs(mean(among_tall)) < 1e-9, mean(by_all[tall]) > 0.5)

raw <- fit(scale = FALSE)
shown <- predict(raw, x)$predicted[, 2]
own <- as.vector(cbind(1, x[, c(1, 3)]) %*% as.numeric(raw$nodemodels[[2]]$model))
cat("mean of the second column:", mean(x[, 2]), "of its predictions without scaling:", mean(shown), "by its coefficients:", mean(own), "\n")
stopifnot(abs(mean(own) - mean(x[, 2])) < 1e-6, abs(mean(shown) - mean(x[, 2])) > 5)

pair <- structure(matrix(0), class = "array")
drawn <- mgmsampler(
  factors = list(matrix(c(1, 2), 1)), interactions = list(list(pair)), thresholds = list(0, 2, 0), sds = c(1, 1, 1),
  type = c("g", "p", "g"), level = c(1, 1, 1), N = 400, nIter = 20, pbar = FALSE
)$data
fitted <- mgm(drawn, c("g", "p", "g"), c(1, 1, 1), lambdaSel = "EBIC", pbar = FALSE, signInfo = FALSE)$intercepts[[2]]
cat("a count drawn with the threshold 2 has the mean", mean(drawn[, 2]), "and is fitted with the intercept", fitted, "\n")
stopifnot(abs(mean(drawn[, 2]) - 2) < 0.4, abs(fitted - log(2)) < 0.2)
cat("as described\n")
R
FOLDER="$folder" Rscript "$folder/predict.R"
