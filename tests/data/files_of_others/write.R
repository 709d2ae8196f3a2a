# Wrote the files beside it, but survey.por: R 4.2.2, haven 2.5.1, foreign 0.8-84. Run it in this folder: Rscript write.R
library(haven)

# The same eight rows in every format, as far as it can say them.
sex <- c(1, 2, 2, 1, 9, 2, NA, 1)
visits <- c(0, 1, 97, 2, 98, 0, 5, NA)
health <- factor(c("poor", "good", "fair", "poor", NA, "good", "poor", "fair"),
                 levels = c("poor", "fair", "good", "excellent"), ordered = TRUE)
region <- factor(c("south", "north", "north", NA, "south", "north", "south", "south"),
                 levels = c("south", "north", "east"))
town <- c("Ulm", "", "Köln", "Ulm", "Köln", "Ulm", "Ulm", "Köln")
named_sex <- c(male = 1, female = 2, other = 3, "no answer" = 9)
named_visits <- c(none = 0, "don't know" = 97, refused = 98)

# SPSS: one missing value, and a range of them.
spss <- data.frame(town)
spss$sex <- labelled_spss(sex, named_sex, na_values = 9)
spss$visits <- labelled_spss(visits, named_visits, na_range = c(97, Inf))
spss$health <- health
spss$region <- region
spss$answer <- labelled_spss(c("j", "n", "x", "j", "j", "n", "", "n"), c(ja = "j", nein = "n", vielleicht = "v", weg = "x"), na_values = "x")
write_sav(spss, "survey.sav", compress = "none")
write_sav(spss, "survey.zsav", compress = "zsav")

# Stata: extended missing values with labels, and unlabelled codes among labelled ones.
stata <- data.frame(town)
stata$sex <- labelled(ifelse(sex %in% 9, tagged_na("a"), sex),
                      c(male = 1, female = 2, other = 3, "no answer" = tagged_na("a")))
stata$visits <- labelled(ifelse(visits %in% 97, tagged_na("d"), ifelse(visits %in% 98, tagged_na("r"), visits)),
                         c(none = 0, "don't know" = tagged_na("d"), refused = tagged_na("r")))
stata$health <- health
stata$region <- region
write_dta(stata, "survey.dta")
foreign::write.dta(data.frame(health, region), "factors.dta")

# SAS: texts and numbers alone.
sas <- data.frame(town = town, sex = sex, health = as.character(health))
write_xpt(sas, "survey.xpt", version = 8, name = "survey")
write_sas(sas, "survey.sas7bdat")

# R: a data frame, several objects, and a table of counts.
plain <- data.frame(town = ifelse(town == "", NA, town), sex = sex, health, region, ill = c(TRUE, FALSE, NA, TRUE, TRUE, FALSE, TRUE, FALSE))
saveRDS(plain, "survey.rds")
saveRDS(read_sav("survey.sav", user_na = TRUE), "haven.rds")
saveRDS(plain, "survey_ascii.rds", ascii = TRUE, compress = FALSE)
day <- as.Date("2020-01-03") + c(0, 1, NA, 0, 0, 1, 1, 0)
hour <- as.POSIXct("2020-01-03 10:00:00", tz = "UTC") + c(0, 3600, NA, 0, 0, 0, 3600, 3600)
whole <- c(3L, NA, 5L, 3L, 3L, 5L, 3L, 5L)
save(day, whole, hour, file = "vectors.RData")
frame_of_types <- data.frame(day, hour, whole, twelve = 1:8 %% 2 == 0, where = I(town))
note <- "not a table"
save(frame_of_types, note, file = "one_frame.RData", compress = "xz")
counted <- xtabs(~ health + region, plain)
saveRDS(counted, "table.rds")
saveRDS(UCBAdmissions, "admissions.rds")
saveRDS(ftable(Titanic, row.vars = 1:2), "ftable.rds")
write.ftable(ftable(Titanic, row.vars = 1:2), "ftable.txt")

# What R stores in short: sequences by their ends, and numbers as text that was not yet asked for.
short <- data.frame(down = 8:1, up = 1:8)
short$texts <- as.character(c(0.1 + 0.2, 1e5, NA, 1 / 3, 2, 123456.5, 1e-7, -4))
short$days <- as.Date(c(18264L, NA, 18265L, 18264L, 18264L, 18264L, 18265L, 18264L), origin = "1970-01-01")
short$added <- addNA(region)
saveRDS(short, "short.rds")
twice <- data.frame(1:2, c("x", "y"))
names(twice) <- c("a", "a")
saveRDS(twice, "twice.rds")
latin <- "K\xf6ln"
Encoding(latin) <- "latin1"
saveRDS(data.frame(town = c(latin, "Ulm"), row.names = c("first", "second")), "latin.rds")

# ARFF.
unlink("survey.sas7bdat.gz"); system("gzip -9n survey.sas7bdat")
foreign::write.arff(data.frame(town, sex, health, region), "survey.arff")
